//! Names: decides which entries count, and builds the tree from them.

use std::collections::{BTreeMap, BTreeSet};

use lp_abi::NAME_MAX;
use lp_abi::linux::{S_IFDIR, S_IFMT, S_IFREG};
use lp_region::layout::COMMAND_ROOTS;
use lp_region::records::{Dirent, Inode, LongName, SHORT_NAME, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, InodeId};
use lp_vfs::dirent;
use lp_vfs::name::Name;

use super::{Directory, Rebuild};
use crate::inode::has_type;

impl Rebuild {
    /// Gathers the tree: from the roots down, then what hangs from none.
    pub(super) fn tree(&mut self) {
        let mut children = self.children();
        self.roots();
        self.roots = self.directories.len();
        self.fill_from(0, &mut children);
        self.lost(&mut children);
        self.dropped += children.values().map(|lost| lost.len() as u64).sum::<u64>();
    }

    /// Fills directories from number `next` on, including those that this adds.
    fn fill_from(&mut self, mut next: usize, children: &mut BTreeMap<u32, Vec<(u64, DirentId)>>) {
        while next < self.directories.len() {
            let mine = children.remove(&self.directories[next].id.0).unwrap_or_default();
            self.fill(next, mine);
            next += 1;
        }
    }

    /// Entries that may count, by directory, each directory's in order.
    fn children(&mut self) -> BTreeMap<u32, Vec<(u64, DirentId)>> {
        let mut found = Vec::new();
        for index in self.extents.slots::<Dirent>() {
            let id = DirentId(index);
            let record = self.region.dirent(id);
            if record.parent.load(Relaxed) == 0 && dirent::target(record).id.is_none() {
                continue; // Free.
            }
            match self.is_true(record) {
                true => found.push(id),
                false => self.dropped += 1,
            }
        }
        found.iter().for_each(|id| self.settle_name(*id));
        let mut children: BTreeMap<u32, Vec<(u64, DirentId)>> = BTreeMap::new();
        for id in found {
            let record = self.region.dirent(id);
            if self.named.get(&dirent::target(record).id.0).is_some_and(|own| *own != id) {
                self.dropped += 1;
                continue;
            }
            let place = (record.position.load(Relaxed), id);
            children.entry(record.parent.load(Relaxed)).or_default().push(place);
        }
        children.values_mut().for_each(|entries| entries.sort_unstable());
        children
    }

    /// Whether an entry's target is live, in the generation that the entry records.
    fn is_true(&self, record: &Dirent) -> bool {
        let target = dirent::target(record);
        let inode = self.region.inode(target.id);
        dirent::lives(record)
            && record.parent.load(Relaxed) <= self.last
            && target.id.is_some()
            && target.id.0 <= self.last
            && target.generation == inode.generation.load(Relaxed)
            && inode.nlink.load(Relaxed) != 0
            && inode.flags.load(Relaxed) & inode_flags::BLOB == 0
            && self.has_name(record)
    }

    /// A directory has one name. Of two, the old and the new name of a rename, the one that the directory
    /// records counts.
    fn settle_name(&mut self, id: DirentId) {
        let target = dirent::target(self.region.dirent(id)).id;
        let inode = self.region.inode(target);
        if inode.is_dir() && (inode.self_dirent.load(Relaxed) == id.0 || !self.named.contains_key(&target.0))
        {
            self.named.insert(target.0, id);
        }
    }

    /// Whether an entry has a valid name.
    fn has_name(&self, record: &Dirent) -> bool {
        let length = dirent::length(record);
        let long = record.long.load(Relaxed);
        if length > SHORT_NAME && (long == 0 || long > self.extents.last::<LongName>()) {
            return false;
        }
        let mut bytes = [0; NAME_MAX];
        dirent::copy_name(self.region, record, &mut bytes);
        let name = &bytes[..length];
        // Of a long name the first bytes stand in the entry too.
        let words_agree = Name::new(name).is_ok_and(|name| {
            record.name.iter().zip(name.words()).all(|(has, word)| has.load(Relaxed) == *word)
        });
        words_agree && name != b"." && name != b".." && !name.contains(&0) && !name.contains(&b'/')
    }

    /// The roots: those that the header names, or the directory that is its own parent.
    fn roots(&mut self) {
        let last = self.last;
        let mut seen = BTreeSet::new();
        for (root, place) in self.region.header().roots.iter().enumerate() {
            let said = InodeId(place.load(Relaxed));
            if said.is_none() {
                continue;
            }
            let is_root = |id: InodeId| {
                let inode = self.region.inode(id);
                id.is_some() && id.0 <= last && inode.is_dir() && inode.parent.load(Relaxed) == id.0
            };
            let of_number = |id: &InodeId| {
                is_root(*id)
                    && self.region.inode(*id).root.load(Relaxed) as usize == root
                    && !seen.contains(&id.0)
            };
            let found = match is_root(said) && !seen.contains(&said.0) {
                true => Some(said),
                false => self.extents.slots::<Inode>().map(InodeId).find(of_number).or_else(|| {
                    // It may have lost its type, too.
                    (said.0 <= last && !seen.contains(&said.0)).then_some(said)
                }),
            };
            let Some(id) = found else {
                place.store(0, Relaxed);
                continue;
            };
            place.store(id.0, Relaxed);
            seen.insert(id.0);
            let inode = self.region.inode(id);
            inode.mode.store(S_IFDIR | inode.mode.load(Relaxed) & 0o7777, Relaxed);
            self.known.insert(id.0);
            self.directories.push(Directory {
                id,
                parent: id,
                entry: DirentId::NONE,
                root: root as u32,
                entries: Vec::new(),
            });
        }
    }

    /// Adds the entries of a directory: each name once, each directory once.
    fn fill(&mut self, at: usize, entries: Vec<(u64, DirentId)>) {
        let (parent, root) = (self.directories[at].id, self.directories[at].root);
        let names = self.last_of_each_name(&entries);
        for (_, entry) in entries {
            let record = self.region.dirent(entry);
            let id = dirent::target(record).id;
            let is_directory = self.settle_type(record, id);
            let is_known = is_directory && self.known.has(id.0);
            let is_long = dirent::length(record) > SHORT_NAME;
            let is_taken = is_known
                || is_directory && self.files.contains_key(&id.0)
                || self.files.get(&id.0).is_some_and(|(_, other)| *other != root)
                || names.get(&self.name(record)) != Some(&entry)
                || is_long && !self.names.insert(record.long.load(Relaxed));
            if is_taken {
                self.dropped += 1;
                continue;
            }
            if !is_long {
                record.long.store(0, Relaxed);
            }
            self.entries.insert(entry.0);
            self.directories[at].entries.push(entry);
            if is_directory {
                self.known.insert(id.0);
                let entries = Vec::new();
                self.directories.push(Directory { id, parent, entry, root, entries });
            } else {
                self.files.entry(id.0).or_insert((0, root)).0 += 1;
            }
        }
    }

    /// The entry for each name of a directory. Of two, whose pages are of different ages, the one whose inode
    /// changed last counts.
    fn last_of_each_name(&self, entries: &[(u64, DirentId)]) -> BTreeMap<Vec<u8>, DirentId> {
        let age = |id: DirentId| {
            let inode = self.region.inode(dirent::target(self.region.dirent(id)).id);
            (inode.ctime.load(Relaxed) as i64, inode.ctime_nsec.load(Relaxed), id)
        };
        let mut names = BTreeMap::new();
        for (_, entry) in entries {
            let own = names.entry(self.name(self.region.dirent(*entry))).or_insert(*entry);
            if age(*entry) > age(*own) {
                *own = *entry;
            }
        }
        names
    }

    fn name(&self, record: &Dirent) -> Vec<u8> {
        let mut bytes = [0; NAME_MAX];
        let length = dirent::copy_name(self.region, record, &mut bytes);
        bytes[..length].to_vec()
    }

    /// Gives an inode that has lost its type the type in its entry; returns whether it is a directory.
    fn settle_type(&self, record: &Dirent, id: InodeId) -> bool {
        let inode = self.region.inode(id);
        let mode = inode.mode.load(Relaxed);
        if !has_type(mode) {
            let said = dirent::kind(record) << 12;
            let kind = if has_type(said) { said } else { S_IFREG };
            inode.mode.store(kind | mode & 0o7777, Relaxed);
        }
        let mode = inode.mode.load(Relaxed) & (S_IFMT | 0o7777);
        inode.mode.store(mode, Relaxed);
        inode.is_dir()
    }

    /// Collects live inodes that no name leads to: directories with everything below them, and non-empty
    /// files. The topmost get a name in `lost+found`.
    fn lost(&mut self, children: &mut BTreeMap<u32, Vec<(u64, DirentId)>>) {
        if self.directories.is_empty() {
            return;
        }
        let living = |id: InodeId| {
            let inode = self.region.inode(id);
            let mode = inode.mode.load(Relaxed);
            let lives = inode.nlink.load(Relaxed) != 0 && inode.flags.load(Relaxed) & inode_flags::BLOB == 0;
            // What a run has mounted goes with it.
            let stays = (inode.root.load(Relaxed) as usize) < COMMAND_ROOTS;
            (lives && stays && has_type(mode) && mode & !(S_IFMT | 0o7777) == 0).then_some(inode)
        };
        let slots = self.extents.slots::<Inode>().take_while(|index| *index <= self.last).map(InodeId);
        let (below, files): (Vec<InodeId>, Vec<InodeId>) =
            slots.filter(|id| living(*id).is_some()).partition(|id| self.region.inode(*id).is_dir());
        let is_below = |id: &InodeId| {
            let entry = self.named.get(&id.0);
            let parent = entry.map(|entry| InodeId(self.region.dirent(*entry).parent.load(Relaxed)));
            parent.and_then(living).is_some_and(Inode::is_dir)
        };
        // Of directories that form a ring, below no root, the first counts as the topmost.
        let (rings, highest): (Vec<InodeId>, Vec<InodeId>) = below.into_iter().partition(is_below);
        for id in highest.into_iter().chain(rings) {
            if self.known.insert(id.0) {
                let root = self.root_of(id);
                let entries = Vec::new();
                let (parent, entry) = (InodeId::NONE, DirentId::NONE);
                self.directories.push(Directory { id, parent, entry, root, entries });
                self.fill_from(self.directories.len() - 1, children);
            }
        }
        for id in files {
            let inode = self.region.inode(id);
            let is_worth = inode.size.load(Relaxed) != 0 || inode.xattr.load(Relaxed) != 0;
            if is_worth && !self.files.contains_key(&id.0) {
                self.files.insert(id.0, (1, self.root_of(id)));
                self.unnamed.push(id);
            }
        }
    }

    /// The root that an inode belongs to; if that root does not exist, the first one.
    fn root_of(&self, id: InodeId) -> u32 {
        let own = self.region.inode(id).root.load(Relaxed);
        match self.directories.iter().take(self.roots).any(|directory| directory.root == own) {
            true => own,
            false => self.directories[0].root,
        }
    }
}
