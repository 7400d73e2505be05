//! Makes anew what can be derived: directories' arrays, the hash table, links, bitmaps, free lists. What counts as true is
//! what cannot: inodes with their page maps, and entries, which know their directory, place, name and target. What only
//! live processes have (lanes, tables, open files, locks, mappings) goes, as nobody lives.

use std::collections::{BTreeMap, BTreeSet};

use lp_abi::linux::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use lp_abi::{NAME_MAX, PAGE_SIZE, PATH_MAX};
use lp_region::layout::{self as at, CHUNK_PAGES};
use lp_region::life::Life;
use lp_region::records::{
    Bucket, Dirent, Inode, LockRecord, LongName, Mapping, OpenFile, SHORT_NAME, inode_flags,
};
use lp_region::seq::Seq;
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, Ordering::Relaxed};
use lp_region::{DirentId, InodeId, LaneId, ProcessId, Region};
use lp_vfs::blob::Which;
use lp_vfs::map::MAX_HEIGHT;
use lp_vfs::name::Name;
use lp_vfs::{Task, dir, dirent, hash};

use crate::bits::Bits;
use crate::extents::Extents;
use crate::pages::{Walk, map_of};
use crate::{has_type, locks, names};

/// Flags of an inode that outlive all processes.
const KEPT_FLAGS: u32 =
    inode_flags::IMMUTABLE | inode_flags::APPEND | inode_flags::NODUMP | inode_flags::NOATIME;
/// Longest target of a symbolic link whose page is not counted.
const UNCOUNTED: u64 = 128;

/// A directory of the tree to come.
struct Directory {
    id: InodeId,
    parent: InodeId,
    /// The entry that names it; none of a root.
    entry: DirentId,
    root: u32,
    /// Its entries, in order.
    entries: Vec<DirentId>,
}

/// What is true of a region, gathered before anything is changed that cannot be seen any more afterwards.
pub(crate) struct Rebuild {
    region: Region<'static>,
    extents: Extents,
    directories: Vec<Directory>,
    /// Which inodes they are.
    known: Bits,
    /// Names of each inode that is no directory, and its root.
    files: BTreeMap<u32, (u32, u32)>,
    /// Blobs that inodes keep.
    blobs: BTreeSet<u32>,
    entries: Bits,
    names: Bits,
    pages: Bits,
    dropped: u64,
}

impl Rebuild {
    /// Reads what is true, putting right what stands in the way.
    pub(crate) fn gather(region: Region<'static>) -> Rebuild {
        let mut all = Rebuild {
            region,
            extents: Extents::of(region),
            directories: Vec::new(),
            known: Bits::default(),
            files: BTreeMap::new(),
            blobs: BTreeSet::new(),
            entries: Bits::default(),
            names: Bits::default(),
            pages: Bits::default(),
            dropped: 0,
        };
        let mut children = all.children();
        all.roots();
        let mut next = 0;
        while next < all.directories.len() {
            let mine = children.remove(&all.directories[next].id.0).unwrap_or_default();
            all.fill(next, mine);
            next += 1;
        }
        all.dropped += children.values().map(|lost| lost.len() as u64).sum::<u64>();
        let files: Vec<u32> = all.files.keys().copied().collect();
        for index in files {
            all.content(index);
            all.attached(index);
        }
        for index in 0..all.directories.len() {
            all.attached(all.directories[index].id.0);
        }
        all
    }

    /// Entries that can be true, by directory, each directory's in order.
    fn children(&mut self) -> BTreeMap<u32, Vec<(u64, DirentId)>> {
        let mut children: BTreeMap<u32, Vec<(u64, DirentId)>> = BTreeMap::new();
        // A use of the damaged region may have touched slots that no inode ever had.
        let limit = self.region.header().inode_limit.load(Relaxed).min(u64::from(u32::MAX)) as u32;
        let last = self.extents.last::<Inode>().min(limit);
        for index in self.extents.slots::<Dirent>() {
            let record = self.region.dirent(DirentId(index));
            let parent = record.parent.load(Relaxed);
            let target = dirent::target(record);
            if parent == 0 && target.id.is_none() {
                continue; // Free.
            }
            let inode = self.region.inode(target.id);
            let is_true = parent <= last
                && target.id.is_some()
                && target.id.0 <= last
                && target.generation == inode.generation.load(Relaxed)
                && self.has_name(record);
            if is_true {
                children.entry(parent).or_default().push((record.position.load(Relaxed), DirentId(index)));
            } else {
                self.dropped += 1;
            }
        }
        children.values_mut().for_each(|entries| entries.sort_unstable());
        children
    }

    /// Whether an entry has a name that a file can have.
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
        let starts_alike = record.name.iter().zip(name).all(|(here, there)| here.load(Relaxed) == *there);
        let ends = record.name.iter().skip(length).all(|byte| byte.load(Relaxed) == 0);
        !name.is_empty()
            && name != b"."
            && name != b".."
            && !name.contains(&0)
            && !name.contains(&b'/')
            && starts_alike
            && ends
    }

    /// The roots: where the header says, or the directory that is its own parent.
    fn roots(&mut self) {
        let last = self.extents.last::<Inode>();
        let mut seen = BTreeSet::new();
        for (root, place) in self.region.header().roots.iter().enumerate() {
            let said = InodeId(place.load(Relaxed));
            if said.is_none() {
                continue;
            }
            let is_root = |id: InodeId| {
                let inode = self.region.inode(id);
                id.is_some() && id.0 <= last && dir::is(inode) && inode.parent.load(Relaxed) == id.0
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

    /// Takes the entries of a directory in, one name once, one directory once.
    fn fill(&mut self, at: usize, entries: Vec<(u64, DirentId)>) {
        let (parent, root) = (self.directories[at].id, self.directories[at].root);
        let mut names = BTreeSet::new();
        for (_, entry) in entries {
            let record = self.region.dirent(entry);
            let mut bytes = [0; NAME_MAX];
            let length = dirent::copy_name(self.region, record, &mut bytes);
            let id = dirent::target(record).id;
            let is_directory = self.settle_type(record, id);
            let is_known = is_directory && self.known.has(id.0);
            let long = record.long.load(Relaxed);
            let is_taken = is_known
                || is_directory && self.files.contains_key(&id.0)
                || self.files.get(&id.0).is_some_and(|(_, other)| *other != root)
                || !names.insert(bytes[..length].to_vec())
                || length > SHORT_NAME && !self.names.insert(long);
            if is_taken {
                self.dropped += 1;
                continue;
            }
            if length <= SHORT_NAME {
                record.long.store(0, Relaxed);
            }
            self.entries.insert(entry.0);
            self.directories[at].entries.push(entry);
            if is_directory {
                self.known.insert(id.0);
                self.directories.push(Directory { id, parent, entry, root, entries: Vec::new() });
            } else {
                self.files.entry(id.0).or_insert((0, root)).0 += 1;
            }
        }
    }

    /// Gives an inode that has lost its type the one that its entry says; whether it is a directory.
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
        dir::is(inode)
    }

    /// Keeps of an inode's page map what is a map and nobody else's.
    fn content(&mut self, index: u32) {
        let inode = self.region.inode(InodeId(index));
        let (root, height) = map_of(inode);
        let mut content = 0;
        let mut walk = Walk {
            region: self.region,
            claimed: &mut self.pages,
            content: &mut |_, _| content += 1,
            fault: &mut |_, _, word| word.store(0, Relaxed),
        };
        let spare = AtomicU32::new(0);
        if root != 0 && height <= MAX_HEIGHT && walk.claim(root, &spare) {
            walk.below(root, height, 0);
        } else {
            inode.map.store(0, Relaxed);
        }
        let kind = inode.mode.load(Relaxed) & S_IFMT;
        let most = if kind == S_IFLNK { PATH_MAX as u64 - 1 } else { i64::MAX as u64 };
        let size = inode.size.load(Relaxed).min(most);
        inode.size.store(size, Relaxed);
        let counts = kind != S_IFLNK || size > UNCOUNTED;
        inode.pages.store(if counts { content } else { 0 }, Relaxed);
    }

    /// Keeps the blobs of an inode that are blobs and nobody else's.
    fn attached(&mut self, index: u32) {
        let inode = self.region.inode(InodeId(index));
        let last = self.extents.last::<Inode>();
        for which in [Which::Xattr, Which::Acl, Which::DefaultAcl] {
            let word = which.word(inode);
            let blob = word.load(Relaxed);
            if blob == 0 {
                continue;
            }
            let is_named = self.files.contains_key(&blob) || self.known.has(blob);
            let is_blob = blob <= last && !is_named && names::is_blob(self.region, InodeId(blob));
            if is_blob && self.blobs.insert(blob) {
                // It has none itself.
                let own = self.region.inode(InodeId(blob));
                [&own.xattr, &own.acl, &own.default_acl].iter().for_each(|word| word.store(0, Relaxed));
                self.content(blob);
            } else {
                word.store(0, Relaxed);
            }
        }
    }

    /// Empties what is derived and what processes had.
    pub(crate) fn reset(&self) {
        self.records();
        self.chunks();
        self.inodes();
        self.reset_slab::<OpenFile>(&Bits::default());
        self.reset_slab::<LockRecord>(&Bits::default());
        self.reset_slab::<Mapping>(&Bits::default());
        self.reset_slab::<Bucket>(&Bits::default());
        self.reset_slab::<Dirent>(&self.entries);
        self.reset_slab::<LongName>(&self.names);
        let mut inodes = Bits::default();
        let directories = self.directories.iter().map(|directory| directory.id.0);
        let others = self.files.keys().chain(&self.blobs).copied();
        directories.chain(others).for_each(|index| _ = inodes.insert(index));
        self.reset_slab::<Inode>(&inodes);
        let header = self.region.header();
        locks::words(&header.split_lock).iter().for_each(|word| word.store(0, Relaxed));
        for word in [&header.lane_limit, &header.chunk_hint, &header.process_limit] {
            word.store(0, Relaxed);
        }
        header.read_only.store(0, Relaxed);
        header.flown.store(0, Relaxed);
        header.hash_state.store(0, Relaxed);
        header.programs.iter().for_each(|word| word.store(0, Relaxed));
        header.tree.reset();
    }

    /// Lanes, processes, tables, runs, buckets, open files, locks, mappings.
    fn records(&self) {
        let clear = |offset: usize, size: usize, count: usize| {
            for index in self.extents.records(offset, size, count) {
                self.zero(self.region.base().addr() + offset + index as usize * size, size);
            }
        };
        let lanes: Vec<u32> = self.extents.records(at::LANES_AT, at::LANE_SIZE, at::LANES).collect();
        let next = |index: &u32| {
            let generation = self.region.lane(LaneId(*index)).generation.load(Relaxed);
            let life = self.region.process(ProcessId(*index)).life.get().freed();
            (generation.wrapping_add(1) % at::LANE_GENERATIONS, life)
        };
        let generations: Vec<(u32, Life)> = lanes.iter().map(next).collect();
        clear(at::RUNS_AT, PAGE_SIZE, at::RUNS * at::RUN_SIZE / PAGE_SIZE);
        clear(at::LANES_AT, at::LANE_SIZE, at::LANES);
        for (index, (generation, life)) in lanes.iter().zip(generations) {
            self.region.lane(LaneId(*index)).generation.store(generation, Relaxed);
            if (*index as usize) < at::PROCESSES {
                let word = &self.region.process(ProcessId(*index)).life;
                word.change(word.get(), life);
            }
        }
        clear(at::FD_TABLES_AT, PAGE_SIZE, at::PROCESSES * at::FDS * 8 / PAGE_SIZE);
        clear(at::FILES_AT, size_of::<OpenFile>(), at::FILES);
        clear(at::LOCKS_AT, size_of::<LockRecord>(), at::LOCKS);
        clear(at::MAPPINGS_AT, size_of::<Mapping>(), at::MAPPINGS);
        clear(at::BUCKETS_AT, size_of::<Bucket>(), at::BUCKETS);
        clear(at::OVERFLOWS_AT, size_of::<Bucket>(), at::OVERFLOWS);
    }

    /// Sets words to zero: `length` bytes at an address inside the region.
    fn zero(&self, address: usize, length: usize) {
        let offset = address - self.region.base().addr();
        assert!(offset + length <= at::CHUNKS_AT && offset.is_multiple_of(4));
        for word in 0..length / 4 {
            // SAFETY: inside the region's fixed part, aligned, and nobody else uses the region.
            unsafe { &*self.region.base().add(offset + word * 4).cast::<AtomicU32>() }.store(0, Relaxed);
        }
    }

    /// The bitmaps say what maps name; what may hold old bytes is said to.
    fn chunks(&self) {
        let count = self.region.chunk_count();
        let mut touched: BTreeSet<u32> =
            self.extents.records(at::DATA_AT, CHUNK_PAGES * PAGE_SIZE, count).collect();
        touched.extend(self.extents.records(at::CHUNKS_AT, size_of::<lp_region::records::Chunk>(), count));
        let limit = self.pages.iter().last().map_or(0, |page| page / CHUNK_PAGES as u32 + 1);
        for index in &touched {
            let Some(chunk) = self.region.chunk(*index as usize) else { continue };
            chunk.owner.store(0, Relaxed);
            chunk.populated.store(1, Relaxed);
            for (word, dirty) in chunk.dirty.iter().enumerate() {
                let used = self.pages.word(*index as usize * CHUNK_PAGES / 64 + word);
                chunk.used[2 * word].reset(used & u64::from(u32::MAX));
                chunk.used[2 * word + 1].reset(used >> 32);
                dirty.store(u64::MAX, Relaxed);
            }
        }
        self.region.header().chunk_limit.store(limit.max(touched.last().map_or(0, |last| last + 1)), Relaxed);
    }

    /// Inodes that stay lose what was under way; the others lose all but their generation.
    fn inodes(&self) {
        for index in self.extents.slots::<Inode>() {
            let inode = self.region.inode(InodeId(index));
            let is_directory = self.known.has(index);
            let stays = is_directory || self.files.contains_key(&index) || self.blobs.contains(&index);
            if !stays {
                let generation = inode.generation.load(Relaxed).wrapping_add(1);
                self.zero(core::ptr::from_ref(inode).addr(), size_of::<Inode>());
                inode.generation.store(generation, Relaxed);
                continue;
            }
            even(&inode.seq);
            even(&inode.data_seq);
            inode.moving.clear();
            let words = locks::inode_words(inode);
            words.iter().for_each(|word| word.store(0, Relaxed));
            words[4].store(index, Relaxed);
            for word in [&inode.link, &inode.locks, &inode.atime_due, &inode.entries] {
                word.store(0, Relaxed);
            }
            for stamp in [&inode.atime, &inode.mtime, &inode.ctime] {
                stamp.nsec.store(stamp.nsec.load(Relaxed).min(999_999_999), Relaxed);
                stamp.zero.store(0, Relaxed);
            }
            inode.custody.clear();
            inode.flags.store(inode.flags.load(Relaxed) & KEPT_FLAGS, Relaxed);
            inode.tail.store(0, Relaxed);
            if is_directory {
                inode.map.store(0, Relaxed);
                inode.pages.store(0, Relaxed);
                inode.size.store(0, Relaxed);
            }
            match self.files.get(&index) {
                Some((names, root)) => {
                    inode.nlink.store(*names, Relaxed);
                    inode.root.store(*root, Relaxed);
                }
                None => inode.nlink.store(1, Relaxed),
            }
        }
    }

    /// Lists as free what is not used, up to the last that is.
    fn reset_slab<T: Slot>(&self, used: &Bits) {
        let head = &self.region.header().slabs[T::SLAB];
        let fresh = used.iter().last().unwrap_or(0);
        let (mut first, mut count) = (0, 0);
        for index in (1..=fresh).rev().filter(|index| !used.has(*index)) {
            self.region.slot::<T>(index).link().store(first, Relaxed);
            (first, count) = (index, count + 1);
        }
        head.free.reset(u64::from(first));
        head.fresh.reset(u64::from(fresh));
        head.base.store(count, Relaxed);
        if T::SLAB == Dirent::SLAB {
            for index in self.extents.slots::<Dirent>().filter(|index| !used.has(*index)) {
                let record = self.region.dirent(DirentId(index));
                record.target.store(0, Relaxed);
                record.parent.store(0, Relaxed);
                record.generation.store(record.generation.load(Relaxed).wrapping_add(1), Relaxed);
            }
        }
    }

    /// Puts every entry into its directory and the table; gives the number of those that were lost on the way.
    pub(crate) fn link(&self, task: &Task) -> u64 {
        let mut dropped = self.dropped;
        for directory in &self.directories {
            let inode = self.region.inode(directory.id);
            inode.parent.store(directory.parent.0, Relaxed);
            inode.self_dirent.store(directory.entry.0, Relaxed);
            inode.root.store(directory.root, Relaxed);
            let mut below = 0;
            for entry in &directory.entries {
                match self.link_one(task, directory.id, *entry) {
                    true => {
                        below += u32::from(dir::is(
                            self.region.inode(dirent::target(self.region.dirent(*entry)).id),
                        ))
                    }
                    false => dropped += 1,
                }
            }
            inode.nlink.store(2 + below, Relaxed);
        }
        dropped
    }

    fn link_one(&self, task: &Task, id: InodeId, entry: DirentId) -> bool {
        let (inode, record) = (self.region.inode(id), self.region.dirent(entry));
        if dir::reserve(task, id).is_err() {
            return false;
        }
        let mut bytes = [0; NAME_MAX];
        let length = dirent::copy_name(self.region, record, &mut bytes);
        let Ok(name) = Name::new(&bytes[..length]) else { return false };
        let mode = self.region.inode(dirent::target(record).id).mode.load(Relaxed);
        let tail = inode.tail.load(Relaxed);
        record.position.store(tail, Relaxed);
        record.hash.store(name.hash(id), Relaxed);
        record.shape.store(length as u32 | dirent::type_of(mode) << 8, Relaxed);
        record.link.store(0, Relaxed);
        dir::put(task, entry);
        inode.tail.store(tail + 1, Relaxed);
        inode.entries.store(inode.entries.load(Relaxed) + 1, Relaxed);
        let load =
            hash::change(task, name.hash(id), LaneId::NONE, |chain| chain.insert(name.hash(id), entry));
        if load == hash::Load::Crowded {
            hash::split(task);
        }
        true
    }
}

/// Ends a section that was left open.
fn even(seq: &Seq) {
    if seq.read() & 1 != 0 {
        seq.end();
    }
}
