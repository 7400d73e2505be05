//! What inodes lack that is still to be taken from the layer below, and what calls need of that.

use core::cell::Cell;

use lp_region::records::{COVERED, Inode, NO_ACL_YET, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeRef, Region};

/// What a call needs from an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A directory's names, or all content of a file.
    All,
    /// What a listing of a directory shows (`names/listing.rs`), or all its names.
    Names,
    /// What an open for reading needs from a file.
    Opened,
    /// The extended attributes of a regular file.
    Attributes,
    /// The page map of a file, which is about to lose a name.
    Map,
    /// A byte range of a file: offset and length.
    Range(u64, u64),
    /// None of a file's content, because the file is being emptied.
    Nothing,
}

/// Which reads pass through, without the content being taken in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    /// The first from start to end: `below/through.rs`.
    First,
    /// Any: the region has no room for the content.
    Any,
}

/// Whether names or content are still to be taken.
#[inline(always)]
pub fn is_pending(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::PENDING != 0 // Relaxed: checked again under the lock.
}

/// Whether the extended attributes of a regular file are still to be taken.
#[inline(always)]
pub fn lacks_attributes(inode: &Inode) -> bool {
    // Acquire: the ACL is there if not. PAIRS: the release store in `below::attributes`.
    inode.flags.load(Acquire) & inode_flags::XATTRS_BELOW != 0
}

/// Whether the ACL of a regular file is still to be taken.
#[inline(always)]
pub(crate) fn lacks_acl(inode: &Inode) -> bool {
    // Relaxed: taken once, and before the flag goes.
    lacks_attributes(inode) && inode.acl.load(Relaxed) & !COVERED == NO_ACL_YET
}

/// Whether a directory stands for the host's of its name. It has [`lp_region::records::COVERED`] too.
pub fn is_hosts(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::HOSTS != 0 // Relaxed: immutable.
}

/// Whether the page map of a file is still to be taken: without it, its pages could not be freed.
#[cold]
pub(crate) fn lacks_map(inode: &Inode) -> bool {
    let below = inode_flags::PENDING | inode_flags::ORIGIN;
    // Relaxed, both: checked again under the lock.
    inode.flags.load(Relaxed) & below == inode_flags::PENDING && inode.map.load(Relaxed) == 0
}

/// Whether a program that looks at a directory will ask for more of its names, as those tell at which it
/// looked before: reading all at once is quicker then.
#[derive(Default)]
pub struct Habit {
    /// The directory whose names were listed last.
    listed: Cell<u64>,
    /// How many directories are taken in at once before the next is listed.
    whole: Cell<u32>,
    /// How many are taken in with the extended attributes of files.
    attributes: Cell<u32>,
}

impl Habit {
    /// Directories that are taken in at once after less was too little.
    const WHOLE: u32 = 32;

    /// Whether the next directory is to be listed.
    pub(crate) fn lists(&self, region: Region<'_>) -> bool {
        let last = InodeRef::from_word(self.listed.replace(0));
        if !last.id.is_none() && !is_pending(region.inode(last.id)) {
            self.whole.set(Habit::WHOLE);
        }
        !Habit::one_of(&self.whole)
    }

    /// Whether names are to be taken with the extended attributes of files.
    pub(crate) fn asks(&self) -> bool {
        Habit::one_of(&self.attributes)
    }

    /// Notes that extended attributes of files were needed.
    pub(crate) fn has_asked(&self) {
        self.attributes.set(Habit::WHOLE);
    }

    /// Notes a directory whose names were listed.
    pub(crate) fn has_listed(&self, dir: InodeRef) {
        self.listed.set(dir.to_word());
    }

    fn one_of(left: &Cell<u32>) -> bool {
        let some = left.get();
        left.set(some.saturating_sub(1));
        some != 0
    }
}
