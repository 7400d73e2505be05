//! Empties what is derived and what only processes have.

use std::collections::BTreeSet;

use lp_abi::PAGE_SIZE;
use lp_region::layout::{self as at, CHUNK_PAGES, Slab};
use lp_region::life::Life;
use lp_region::mount::{Mount, Superblock};
use lp_region::records::{
    ABOVE_LAYER, Bucket, Chunk, Dirent, Inode, LockRecord, LongName, Mapping, OpenFile, inode_flags,
};
use lp_region::seq::Seq;
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, Ordering::Relaxed};
use lp_region::{DirentId, InodeId, InodeRef, LaneId, PageId, ProcessId};
use lp_vfs::{dirent, inode, owner};

use super::Rebuild;
use crate::bits::Bits;
use crate::locks;

/// Flags of an inode that outlive all processes.
const KEPT_FLAGS: u32 = inode_flags::IMMUTABLE
    | inode_flags::APPEND
    | inode_flags::NODUMP
    | inode_flags::NOATIME
    | inode_flags::ORIGIN
    | inode_flags::PENDING
    | inode_flags::LINKED_BELOW
    | inode_flags::XATTRS_BELOW
    | inode_flags::TRUSTED_BELOW
    | inode_flags::SPACE
    | inode_flags::HOSTS
    | inode_flags::KIND;

impl Rebuild {
    /// Empties what is derived and what processes had.
    pub(crate) fn reset(&self) {
        self.records();
        self.chunks();
        // Every number that an inode may have is possible above a layer.
        let numbers = &self.region.header().numbers;
        if numbers.load(Relaxed) != 0 {
            numbers.store(ABOVE_LAYER, Relaxed);
        }
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
        header.mount_turn.store(0, Relaxed);
        for word in [&header.lane_limit, &header.chunk_hint, &header.process_limit, &header.mount_limit] {
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
        let clear = |slab: Slab| {
            for index in self.extents.records(slab) {
                let bytes = slab.bytes(index as usize..index as usize + 1);
                self.zero(self.region.base().addr() + bytes.start, bytes.len());
            }
        };
        let lanes: Vec<u32> = self.extents.records(at::LANE_SLAB).collect();
        let next = |index: &u32| {
            let generation = self.region.lane(LaneId(*index)).generation.load(Relaxed);
            let life = self.region.process(ProcessId(*index)).life.get().freed();
            (generation.wrapping_add(1) % at::LANE_GENERATIONS, life)
        };
        let generations: Vec<(u32, Life)> = lanes.iter().map(next).collect();
        clear(Slab::up(at::RUNS_AT, at::RUNS * at::RUN_SIZE / PAGE_SIZE, PAGE_SIZE));
        clear(Slab::up(at::MOUNTS_AT, at::MOUNTS, size_of::<Mount>()));
        clear(Slab::up(at::SUPERBLOCKS_AT, at::SUPERBLOCKS, size_of::<Superblock>()));
        clear(at::LANE_SLAB);
        clear(Slab::up(at::PLANS_AT, at::LANES, at::PLAN_SIZE));
        clear(Slab::up(at::UNLINKED_AT, at::LANES, at::UNLINKED_SIZE));
        for (index, (generation, life)) in lanes.iter().zip(generations) {
            self.region.lane(LaneId(*index)).generation.store(generation, Relaxed);
            if (*index as usize) < at::PROCESSES {
                let word = &self.region.process(ProcessId(*index)).life;
                word.change(word.get(), life);
            }
        }
        clear(Slab::up(at::FD_TABLES_AT, at::PROCESSES * at::FDS * 8 / PAGE_SIZE, PAGE_SIZE));
        [at::FILE_SLAB, at::LOCK_SLAB, at::MAPPING_SLAB, at::BUCKET_SLAB, at::OVERFLOW_SLAB]
            .into_iter()
            .for_each(clear);
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

    /// Sets the bitmaps from what maps name, and marks pages that may hold old bytes.
    fn chunks(&self) {
        let count = self.region.chunk_count();
        let mut touched: BTreeSet<u32> =
            self.extents.records(Slab::up(at::DATA_AT, count, CHUNK_PAGES * PAGE_SIZE)).collect();
        touched.extend(self.extents.records(at::CHUNK_OWNER_SLAB));
        touched.extend(self.extents.records(Slab::up(at::CHUNKS_AT, count, size_of::<Chunk>())));
        // Owner words have space together with those of chunks that a small region does not have.
        touched.retain(|index| (*index as usize) < count);
        let limit = self.pages.iter().last().map_or(0, |page| page / CHUNK_PAGES as u32 + 1);
        for index in &touched {
            let Some(chunk) = self.region.chunk(*index as usize) else { continue };
            chunk.owner.store(0, Relaxed);
            // The free pages of the first eighth stand for all those that have memory to give back.
            let mut populated = 1;
            for (word, dirty) in chunk.dirty.iter().enumerate() {
                let pages = self.pages.word(*index as usize * CHUNK_PAGES / 64 + word);
                populated |= u32::from(pages != 0) << word;
                chunk.used[2 * word].reset(pages & u64::from(u32::MAX));
                chunk.used[2 * word + 1].reset(pages >> 32);
                self.forget_owners(*index as usize * CHUNK_PAGES + word * 64, !pages);
                dirty.store(u64::MAX, Relaxed);
            }
            chunk.populated.store(populated, Relaxed);
        }
        self.region.header().chunk_limit.store(limit.max(touched.last().map_or(0, |last| last + 1)), Relaxed);
    }

    /// Clears the owners of free pages. `free` has the bits of 64 pages.
    fn forget_owners(&self, first: usize, free: u64) {
        let words = at::OWNER_SLAB.bytes(first..first + 64);
        if self.extents.has(words.start as u64) || self.extents.has(words.end as u64 - 1) {
            let pages = (0..64).filter(|bit| free & 1 << bit != 0).map(|bit| PageId((first + bit) as u32));
            pages.for_each(|page| owner::forget(self.region, page));
        }
    }

    /// Clears the transient state of inodes that stay; clears the others except for their generation.
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
            inode.locks_lock.clear();
            let of = InodeRef { id: InodeId(index), generation: inode.generation.load(Relaxed) };
            if !inode::has_possible_number(self.region, of) {
                inode.number.store(inode::own_number(self.region, of), Relaxed);
            }
            for word in [&inode.link, &inode.locks, &inode.atime_due, &inode.entries] {
                word.store(0, Relaxed);
            }
            for nsec in [&inode.atime.nsec, &inode.mtime.nsec, &inode.ctime_nsec] {
                nsec.store(nsec.load(Relaxed).min(999_999_999), Relaxed);
            }
            for zero in [&inode.atime.zero, &inode.mtime.zero, &inode.zero] {
                zero.store(0, Relaxed);
            }
            inode.custody.clear();
            let kept = match self.files.contains_key(&index) {
                true => KEPT_FLAGS | inode_flags::MEMBER,
                false if is_directory => KEPT_FLAGS,
                false => inode_flags::BLOB | inode_flags::COMMON,
            };
            let flags = inode.flags.load(Relaxed) & kept;
            inode.flags.store(flags, Relaxed);
            if let Some(files) = self.shared.get(&index) {
                self.region.members(InodeId(index)).reset(files.len() as u64);
            } else if flags & inode_flags::MEMBER == 0 {
                inode.tail.store(0, Relaxed);
            }
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

    /// Puts unused slots on the free list, up to the last used one.
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
                dirent::die(record);
                record.seq.begin();
                record.seq.end();
            }
            used.iter().for_each(|index| even(&self.region.dirent(DirentId(index)).seq));
        }
    }
}

/// Ends a section that was left open.
fn even(seq: &Seq) {
    if seq.read() & 1 != 0 {
        seq.end();
    }
}
