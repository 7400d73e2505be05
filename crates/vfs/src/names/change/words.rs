//! What a change of names is made of, and its words in an intent.

use lp_region::lane::INTENT_WORDS;
use lp_region::{DirentId, InodeId, InodeRef};

use crate::caller::task::Time;

/// Words of a [`Plain`] change.
pub(super) const PLAIN: usize = 6;

/// A directory after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Directory {
    /// The directory; none if the change has no such directory.
    pub id: InodeId,
    /// Live entries.
    pub entries: u32,
    /// Links.
    pub nlink: u32,
    /// Position of the next entry.
    pub tail: u64,
}

/// An inode whose link count, or only `ctime`, a change sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Links {
    /// The inode; none if the change has no such inode.
    pub id: InodeId,
    /// Link count afterwards.
    pub nlink: u32,
}

impl Links {
    /// No inode.
    pub(crate) const NONE: Links = Links { id: InodeId::NONE, nlink: 0 };

    /// Whether the inode loses its last link.
    #[inline(always)]
    pub(super) fn are_none_left(&self) -> bool {
        self.id.is_some() && self.nlink == 0
    }
}

/// An entry that gets another target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retarget {
    /// The entry; none if the change has no such entry.
    pub dirent: DirentId,
    /// Its target afterwards.
    pub target: InodeRef,
}

/// A directory that gets another parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    /// The directory; none if the change has no such directory.
    pub id: InodeId,
    /// Its parent afterwards.
    pub parent: InodeId,
}

/// A change of one directory's entries and at most one inode's links, as most are: the state afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plain {
    /// The directory.
    pub dir: Directory,
    /// An entry to add, filled in, with its position.
    pub added: DirentId,
    /// An entry to remove.
    pub removed: DirentId,
    /// The inode whose link count or `ctime` changes.
    pub links: Links,
    /// The new `mtime` and `ctime`.
    pub time: Time,
}

impl Plain {
    #[inline(always)]
    pub(super) fn to_words(self) -> [u64; PLAIN] {
        let (dir, links) = (self.dir, self.links);
        [
            pair(dir.id.0, links.id.0),
            pair(dir.entries, dir.nlink),
            dir.tail,
            pair(self.added.0, self.removed.0),
            pair(links.nlink, self.time.nsec),
            self.time.sec as u64,
        ]
    }
}

/// Any change of names: the state afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// The directories whose entries change.
    pub dirs: [Directory; 2],
    /// An entry to add, filled in, with its position.
    pub added: DirentId,
    /// An entry to remove.
    pub removed: DirentId,
    /// Entries that stay but get another target.
    pub retargeted: [Retarget; 2],
    /// Inodes whose link count or `ctime` changes.
    pub inodes: [Links; 2],
    /// Directories that move: the first to `added` or, if none, to the first retargeted entry; the second to
    /// the second.
    pub moved: [Moved; 2],
    /// The new `mtime` and `ctime`.
    pub time: Time,
}

impl Change {
    /// A change of nothing, at a given time.
    pub(crate) const fn at(time: Time) -> Self {
        let dir = Directory { id: InodeId::NONE, entries: 0, nlink: 0, tail: 0 };
        let retarget = Retarget { dirent: DirentId::NONE, target: InodeRef::NONE };
        let links = Links::NONE;
        let moved = Moved { id: InodeId::NONE, parent: InodeId::NONE };
        Change {
            dirs: [dir; 2],
            added: DirentId::NONE,
            removed: DirentId::NONE,
            retargeted: [retarget; 2],
            inodes: [links; 2],
            moved: [moved; 2],
            time,
        }
    }

    /// The inode that loses its last link.
    pub(super) fn victim(&self) -> InodeId {
        let gone = self.inodes.iter().find(|links| links.are_none_left());
        gone.map_or(InodeId::NONE, |links| links.id)
    }

    #[inline(always)]
    pub(super) fn to_words(self) -> [u64; INTENT_WORDS] {
        let ([plain, dir], [only, links]) = (self.dirs, self.inodes);
        let ([first, second], [old, new]) = (self.moved, self.retargeted);
        let (added, removed, time) = (self.added, self.removed, self.time);
        let [a, b, c, d, e, f] = Plain { dir: plain, added, removed, links: only, time }.to_words();
        [
            a,
            b,
            c,
            d,
            e,
            f,
            pair(dir.id.0, links.id.0),
            pair(dir.entries, dir.nlink),
            dir.tail,
            pair(links.nlink, old.dirent.0),
            old.target.to_word(),
            pair(new.dirent.0, first.id.0),
            new.target.to_word(),
            pair(first.parent.0, second.id.0),
            u64::from(second.parent.0),
        ]
    }

    /// Decodes a change. The words behind those of a [`Plain`] one must be zero.
    pub(super) fn from_words(words: &[u64; INTENT_WORDS]) -> Self {
        let low = |index: usize| words[index] as u32;
        let high = |index: usize| (words[index] >> 32) as u32;
        let dir = |at: usize| Directory {
            id: InodeId(low(at)),
            entries: low(at + 1),
            nlink: high(at + 1),
            tail: words[at + 2],
        };
        let retarget = |dirent: u32, at: usize| Retarget {
            dirent: DirentId(dirent),
            target: InodeRef::from_word(words[at]),
        };
        let moved = |id: u32, parent: u32| Moved { id: InodeId(id), parent: InodeId(parent) };
        Change {
            dirs: [dir(0), dir(6)],
            added: DirentId(low(3)),
            removed: DirentId(high(3)),
            retargeted: [retarget(high(9), 10), retarget(low(11), 12)],
            inodes: [
                Links { id: InodeId(high(0)), nlink: low(4) },
                Links { id: InodeId(high(6)), nlink: low(9) },
            ],
            moved: [moved(high(11), low(13)), moved(high(13), low(14))],
            time: Time { sec: words[5] as i64, nsec: high(4) },
        }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
