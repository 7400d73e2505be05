//! Names: directories' arrays, entries, the hash table, links. An entry is once in its directory's array and
//! once in the table; it names a live inode; an inode has as many links as names.

use std::collections::{BTreeMap, BTreeSet};

use lp_abi::NAME_MAX;
use lp_abi::linux::{S_IFDIR, S_IFMT, S_IFREG};
use lp_region::bucket::{self, Mark, Pair};
use lp_region::layout as at;
use lp_region::records::{Dirent, Inode, SHORT_NAME, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, InodeId, LaneId, OverflowId, PageId, Region};
use lp_vfs::dir::{Leaf, PER_LEAF};
use lp_vfs::intent::op;
use lp_vfs::name::Name;
use lp_vfs::{dirent, hash};

use crate::bits::Bits;
use crate::inode::{has_type, map_of};
use crate::pages::Walk;
use crate::{Check, header, mounts};

/// What names show about an inode.
#[derive(Clone, Copy, Default)]
struct Named {
    /// Names that lead to it.
    names: u32,
    /// Directories named in it.
    below: u32,
}

/// Results of the pass.
#[derive(Default)]
struct Pass {
    /// Entries in directories' arrays.
    listed: Bits,
    /// Entries in the table.
    tabled: Bits,
    /// Entries whose copy, made by a split, represents them.
    left: Bits,
    /// Entries with a copy that is to become plain.
    coming: Bits,
    /// Overflow buckets in chains.
    chained: Bits,
    /// Long names of entries.
    long: Bits,
    inodes: Vec<Named>,
    /// Entry that names each directory, by inode.
    of_directory: BTreeMap<u32, u32>,
}

impl Check<'_> {
    /// Directories, entries, the table.
    pub(crate) fn names(&mut self) {
        let fresh = self.slabs.inodes.fresh;
        let mut pass = Pass::default();
        pass.inodes.resize(fresh as usize + 1, Named::default());
        for index in self.extents.slots::<Inode>().take_while(|index| *index <= fresh).collect::<Vec<_>>() {
            let inode = self.region.inode(InodeId(index));
            // A directory without links has no entries, or was left partly initialised.
            let counts = inode.is_dir() && inode.nlink.load(Relaxed) != 0;
            if counts && self.slabs.inodes.is_used(index) && !self.slabs.inodes.hand.has(index) {
                self.directory(index, inode, &mut pass);
            }
        }
        self.table(&mut pass);
        self.entries(&mut pass);
        self.links(&pass);
        self.tree_shape(&pass);
        self.parts(&pass);
    }

    fn directory(&mut self, index: u32, inode: &Inode, pass: &mut Pass) {
        let (_, height) = map_of(inode);
        let is_dead = inode.flags.load(Relaxed) & inode_flags::DEAD != 0;
        let tail = inode.tail.load(Relaxed);
        // In a removed directory the field has another meaning.
        let room = 1u64.checked_shl(10 * height.min(6)).unwrap_or(u64::MAX).saturating_mul(PER_LEAF);
        if !is_dead && tail > room {
            self.structure(|| format!("directory {index} ends at position {tail}, behind its {room} places"));
        }
        let mut live = 0;
        for (leaf, page) in leaves(self.region, InodeId(index)) {
            let Some(words) = Leaf::new(self.region, page) else { continue };
            let mut here = 0;
            for position in leaf * PER_LEAF..(leaf + 1) * PER_LEAF {
                let entry = words.entry(position).load(Relaxed);
                if entry != 0 {
                    here += 1;
                    self.listed(index, entry, position, tail, pass);
                }
            }
            live += here;
            let said = self.region.page_words(page)[0].load(Relaxed);
            if said != here {
                self.half(inode, || {
                    format!("page {leaf} of directory {index} has {here} entries and counts {said}")
                });
            }
        }
        let said = inode.entries.load(Relaxed);
        // Names that are being taken in are counted before they have entries.
        if said != live && !lp_vfs::below::is_pending(inode) {
            self.half(inode, || format!("directory {index} has {live} entries and counts {said}"));
        }
    }

    /// Reports something that a killed change of a directory leaves half done.
    fn half(&mut self, inode: &Inode, what: impl FnOnce() -> String) {
        if self.is_held_by_the_dead(inode) { self.leftover(what) } else { self.inconsistent(what) }
    }

    fn listed(&mut self, index: u32, entry: u32, position: u64, tail: u64, pass: &mut Pass) {
        if entry > self.slabs.entries.fresh {
            return self.structure(|| format!("directory {index} lists entry {entry}, which is none"));
        }
        if !pass.listed.insert(entry) {
            return self.inconsistent(|| format!("entry {entry} stands in two places of directories"));
        }
        let inode = self.region.inode(InodeId(index));
        let record = self.region.dirent(DirentId(entry));
        if record.parent.load(Relaxed) != index || record.position.load(Relaxed) != position {
            self.half(inode, || format!("directory {index} lists entry {entry}, which belongs elsewhere"));
        }
        if position >= tail {
            self.half(inode, || format!("directory {index} ends before its entry {entry} at {position}"));
        }
    }

    /// The hash table, bucket by bucket.
    fn table(&mut self, pass: &mut Pass) {
        let state = self.region.header().hash_state.load(Relaxed);
        if !header::is_hash_state(state) {
            return;
        }
        let buckets = (1 << (hash::BASE_LEVEL + (state as u32 & 31))) + (state >> 32) as u32;
        let all = self.extents.records(at::BUCKET_SLAB);
        for index in all.take_while(|index| *index < buckets).collect::<Vec<_>>() {
            let first = self.region.bucket(index);
            let mut bucket = first;
            loop {
                for word in &bucket.entries {
                    self.tabled(index, word.load(Relaxed), state, pass);
                }
                if !core::ptr::eq(first, bucket)
                    && bucket.entries.iter().all(|word| bucket::is_empty(word.load(Relaxed)))
                {
                    self.idle += 1;
                }
                let next = bucket.next_index();
                if next == 0 {
                    break;
                }
                if next > self.slabs.overflows.fresh || !pass.chained.insert(next) {
                    self.structure(|| format!("the chain of bucket {index} leads to overflow bucket {next}, which is none of its"));
                    break;
                }
                bucket = self.region.overflow(OverflowId(next));
            }
        }
        // Neither original nor copy counts alone.
        let Pass { left, coming, tabled, .. } = pass;
        left.iter().filter(|entry| coming.has(*entry)).for_each(|entry| _ = tabled.insert(entry));
    }

    fn tabled(&mut self, index: u32, word: u64, state: u64, pass: &mut Pass) {
        let (entry, hash) = (bucket::id_of(word as u32), bucket::hash_of(word));
        let mark = bucket::mark_of(word);
        if bucket::is_empty(word) {
            if bucket::bare(word) != 0 || mark != Mark::None {
                self.inconsistent(|| format!("bucket {index} has a word that is empty and is not"));
            }
            return;
        }
        if entry > self.slabs.entries.fresh {
            return self.structure(|| format!("bucket {index} names entry {entry}, which is none"));
        }
        let pair = Pair::of(hash::BASE_LEVEL, state);
        let is_split = bucket::is_under_way(state) && (index == pair.from || index == pair.to);
        let place = hash::place(state, hash);
        let is_here = place == index || is_split && index == pair.from && place == pair.to;
        let is_alone = match mark {
            Mark::None | Mark::Leaving => pass.tabled.insert(entry),
            Mark::Left => {
                pass.left.insert(entry);
                is_split
            }
            Mark::Coming => {
                pass.coming.insert(entry);
                is_split
            }
        };
        let is_whole = self.region.dirent(DirentId(entry)).hash.load(Relaxed) == hash
            && is_here
            && is_alone
            && (mark == Mark::None || is_split);
        if !is_whole {
            self.inconsistent(|| {
                format!("bucket {index} holds entry {entry}, whose place is another or taken")
            });
        }
    }

    /// Every entry that is referenced somewhere, and every one that is not.
    fn entries(&mut self, pass: &mut Pass) {
        let fresh = self.slabs.entries.fresh;
        let intended = self.intended();
        for index in self.extents.slots::<Dirent>().take_while(|index| *index <= fresh).collect::<Vec<_>>() {
            let (listed, tabled) = (pass.listed.has(index), pass.tabled.has(index));
            let is_used = self.slabs.entries.is_used(index);
            let in_hand = self.slabs.entries.hand.has(index) || intended.contains(&index);
            match (listed, tabled) {
                (true, true) => {
                    if !self.stands(index, in_hand) {
                        // Its long name belongs to it.
                        pass.long.insert(self.region.dirent(DirentId(index)).long.load(Relaxed));
                        continue;
                    }
                }
                (false, false) if !is_used => continue,
                _ if in_hand => {
                    self.leftover(|| format!("entry {index} is in the hands of a thread that is gone"));
                    continue;
                }
                (false, false) => {
                    self.leak(|| format!("entry {index} is in use and stands nowhere"));
                    continue;
                }
                (true, false) => {
                    self.inconsistent(|| format!("entry {index} is listed and is not in the hash table"));
                }
                (false, true) => {
                    self.inconsistent(|| format!("entry {index} is in the hash table and not listed"));
                }
            }
            if !is_used {
                self.inconsistent(|| format!("entry {index} stands in a directory and is free"));
            }
            self.entry(index, pass);
        }
    }

    /// The entries that dead lanes' unfinished changes concern, which may be anywhere.
    fn intended(&self) -> BTreeSet<u32> {
        let mut entries = BTreeSet::new();
        for lane in 1..self.lanes {
            let intent = &self.region.lane(LaneId(lane)).intent;
            let op = intent.op.load(Relaxed);
            if matches!(op, op::CHANGE | op::PLAIN_CHANGE) {
                let word = intent.words[3].load(Relaxed);
                entries.extend([word as u32, (word >> 32) as u32]);
            }
            if op == op::CHANGE {
                let words = [intent.words[9].load(Relaxed) >> 32, intent.words[11].load(Relaxed)];
                entries.extend(words.map(|word| word as u32));
            }
        }
        entries
    }

    /// Whether an entry that the table and its directory lead to is live.
    fn stands(&mut self, entry: u32, in_hand: bool) -> bool {
        let record = self.region.dirent(DirentId(entry));
        let lives = dirent::lives(record);
        if !dirent::is_whole(record) || record.seq.read() & 1 != 0 {
            let what =
                || format!("entry {entry} stands in its places and does not live, or is being renamed");
            if in_hand { self.leftover(what) } else { self.inconsistent(what) }
        }
        lives
    }

    fn entry(&mut self, index: u32, pass: &mut Pass) {
        let region = self.region;
        let record = region.dirent(DirentId(index));
        let parent = record.parent.load(Relaxed);
        let (mut bytes, length) = ([0; NAME_MAX], dirent::length(record));
        let long = record.long.load(Relaxed);
        if length <= SHORT_NAME && long != 0 {
            // The long name is freed with the entry.
            self.structure(|| format!("entry {index} has a short name and long name {long}"));
        } else if length > SHORT_NAME && !(self.slabs.names.is_used(long) && pass.long.insert(long)) {
            self.structure(|| format!("entry {index} has long name {long}, which is not its own"));
        }
        dirent::copy_name(region, record, &mut bytes);
        let name = &bytes[..length];
        let hash = Name::new(name).map(|name| name.hash(InodeId(parent)));
        if hash != Ok(record.hash.load(Relaxed)) || name.contains(&0) || name.contains(&b'/') {
            self.inconsistent(|| format!("entry {index} of directory {parent} has a damaged name"));
        }
        let target = dirent::target(record);
        if target.id.0 > self.slabs.inodes.fresh {
            return self.structure(|| {
                format!("entry {index} of directory {parent} names inode {}, which is none", target.id.0)
            });
        }
        let inode = region.inode(target.id);
        if !self.slabs.inodes.is_used(target.id.0) || inode.generation.load(Relaxed) != target.generation {
            return self.inconsistent(|| {
                format!("entry {index} of directory {parent} names inode {}, which is free", target.id.0)
            });
        }
        let mode = inode.mode.load(Relaxed);
        if dirent::kind(record) != dirent::type_of(mode) {
            self.inconsistent(|| {
                format!("entry {index} of directory {parent} has another type than its inode")
            });
        }
        self.reach(target.id.0);
        pass.inodes[target.id.index()].names += 1;
        if mode & S_IFMT != S_IFDIR {
            return;
        }
        if let Some(above) = pass.inodes.get_mut(parent as usize) {
            above.below += 1;
        }
        let is_first = pass.of_directory.insert(target.id.0, index).is_none();
        if !is_first || inode.parent.load(Relaxed) != parent || inode.self_dirent.load(Relaxed) != index {
            self.half(inode, || format!("directory {} does not know its entry {index}", target.id.0));
        }
    }

    /// Checks that link counts match names.
    fn links(&mut self, pass: &Pass) {
        let roots = mounts::roots(self.region);
        for (index, named) in pass.inodes.iter().enumerate().skip(1) {
            let index = index as u32;
            if !self.extents.has(at::INODE_SLAB.offset(index as usize) as u64)
                || !self.slabs.inodes.is_used(index)
                || self.slabs.inodes.hand.has(index)
            {
                continue;
            }
            let inode = self.region.inode(InodeId(index));
            let nlink = inode.nlink.load(Relaxed);
            let is_root = roots.contains(&index);
            if is_root {
                self.reach(index);
            }
            let wanted = match (inode.is_dir(), named.names != 0 || is_root) {
                (true, true) => 2 + named.below,
                // Its links come from other references: see `held`.
                (_, false) => continue,
                (false, true) => named.names,
            };
            // It may have links in the layer below that nobody has looked at.
            let flags = inode.flags.load(Relaxed);
            if flags & inode_flags::LINKED_BELOW != 0 || inode.is_dir() && flags & inode_flags::PENDING != 0 {
                continue;
            }
            if nlink != wanted && has_type(inode.mode.load(Relaxed)) {
                self.half(inode, || format!("inode {index} has {wanted} links and counts {nlink}"));
            }
        }
    }

    /// Every directory with a name leads up to a root.
    fn tree_shape(&mut self, pass: &Pass) {
        let (mut good, mut seen) = (Bits::default(), Bits::default());
        for root in mounts::roots(self.region) {
            if self.slabs.inodes.is_used(root) {
                good.insert(root);
            }
        }
        for directory in pass.of_directory.keys() {
            let mut way = Vec::new();
            let mut at = *directory;
            while !good.has(at) {
                // Everything on earlier ways is good already.
                if !seen.insert(at) {
                    self.structure(|| format!("directory {directory} lies below itself"));
                    break;
                }
                way.push(at);
                let Some(entry) = pass.of_directory.get(&at) else {
                    self.inconsistent(|| format!("directory {directory} leads up to no root"));
                    break;
                };
                at = self.region.dirent(DirentId(*entry)).parent.load(Relaxed) & (at::INODES as u32 - 1);
            }
            way.into_iter().for_each(|index| _ = good.insert(index));
        }
    }

    /// Long names and overflow buckets in use that belong to nothing.
    fn parts(&mut self, pass: &Pass) {
        let slabs = &self.slabs;
        let lost = |fresh: u32, used: &dyn Fn(u32) -> bool, known: &Bits| {
            (1..=fresh).filter(|index| used(*index) && !known.has(*index)).collect::<Vec<_>>()
        };
        let is_free =
            |index: u32, slots: &crate::slabs::SlabSlots| slots.is_used(index) && !slots.hand.has(index);
        let names = lost(slabs.names.fresh, &|index| is_free(index, &slabs.names), &pass.long);
        let buckets = lost(slabs.overflows.fresh, &|index| is_free(index, &slabs.overflows), &pass.chained);
        let free_in_chain = pass.chained.iter().find(|index| !slabs.overflows.is_used(*index));
        for (what, lost) in [("long name", names), ("overflow bucket", buckets)] {
            if let Some(first) = lost.first() {
                self.leak(|| {
                    format!("{} {what} slots are in use for nothing, the first is {first}", lost.len())
                });
            }
        }
        if let Some(index) = free_in_chain {
            self.inconsistent(|| format!("overflow bucket {index} stands in a chain and is free"));
        }
    }
}

/// Pages of a directory's array with their places. Terminates on any map.
pub(crate) fn leaves(region: Region<'_>, id: InodeId) -> Vec<(u64, PageId)> {
    let inode = region.inode(id);
    let (root, height) = map_of(inode);
    let (mut claimed, mut found) = (Bits::default(), Vec::new());
    if root != 0 && height <= lp_vfs::map::MAX_HEIGHT {
        let mut walk = Walk {
            region,
            owner: id,
            kin: &[],
            lender: None,
            claimed: &mut claimed,
            content: &mut |index, page| found.push((index, page)),
            fault: &mut |_, _, _| {},
        };
        if walk.claim(root, (height, 0), &inode.link) {
            walk.below(root, height, 0);
        }
    }
    // Positions beyond this do not fit a word.
    found.retain(|(index, _)| *index < u64::MAX / PER_LEAF - 1);
    found
}

/// Whether an inode can be a blob: a file that has all the content its size claims. A reader of a blob reads
/// to its end.
pub(crate) fn is_blob(region: Region<'_>, id: InodeId) -> bool {
    let inode = region.inode(id);
    let bytes = leaves(region, id).len() as u64 * lp_abi::PAGE_SIZE as u64;
    inode.mode.load(Relaxed) == S_IFREG && inode.size.load(Relaxed) <= bytes
}

/// Everything below a root: path, mode and links. Terminates on any region.
pub fn tree(region: Region<'_>, root: InodeId) -> BTreeMap<String, (u32, u32)> {
    let mut found = BTreeMap::new();
    let mut seen = Bits::default();
    // Not recursive: directories may be nested thousands deep.
    let mut pending = vec![(root, String::new())];
    while let Some((id, path)) = pending.pop() {
        if !seen.insert(id.0) {
            continue;
        }
        for (leaf, page) in leaves(region, id) {
            let Some(words) = Leaf::new(region, page) else { continue };
            for position in leaf * PER_LEAF..(leaf + 1) * PER_LEAF {
                let entry = DirentId(words.entry(position).load(Relaxed));
                if entry.is_none() || entry.index() >= Dirent::SLOTS {
                    continue;
                }
                let record = region.dirent(entry);
                if !dirent::lives(record) {
                    continue;
                }
                let mut bytes = [0; NAME_MAX];
                let length = dirent::copy_name(region, record, &mut bytes);
                let path = format!("{path}/{}", String::from_utf8_lossy(&bytes[..length]));
                let target = region.inode(dirent::target(record).id);
                let mode = target.mode.load(Relaxed);
                found.insert(path.clone(), (mode, target.nlink.load(Relaxed)));
                if mode & S_IFMT == S_IFDIR {
                    pending.push((dirent::target(record).id, path));
                }
            }
        }
    }
    found
}
