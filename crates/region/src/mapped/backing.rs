//! Space in the host's file system for a region that lies in a file.
//!
//! A region file is sparse, and a store to a hole fails with SIGBUS when the file system below is full. A
//! process that is about to touch a part of it for the first time therefore reserves space with fallocate(2),
//! while it can still return `ENOSPC`. Parts grow in whole steps: beyond the used part of each slab, space is
//! reserved up to the next multiple of `STEP`. A launcher that finds no other run at work reserves space
//! for everything in use, because a copy of a region file has holes where there was space.
//!
//! Nothing is reserved for a region in a memfd, whose pages are memory. On a file system without fallocate(2)
//! the kernel faults in the pages instead: madvise(2) fails where a store would cause SIGBUS.

use core::ops::Range;

use lp_abi::linux::{
    __NR_fallocate, __NR_madvise, FALLOC_FL_KEEP_SIZE, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_RANDOM,
};
use lp_abi::{Errno, PAGE_SIZE, Result};

use crate::ids::{LaneId, ProcessId};
use crate::layout as at;
use crate::records::*;
use crate::region::Region;
use crate::slab::Slot;
use crate::sync::Ordering;

/// Space is reserved up to multiples of this.
const STEP: usize = 64 << 10;
/// Largest step by which space is reserved ahead.
const MOST_AHEAD: usize = 4 << 20;
/// Processes that have space from the start: what a shell needs to clean up when no more is available.
const SLOTS: u32 = 32;

/// How long the file of a region has existed, as [`Header::in_file`](crate::records::Header::in_file) says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAge {
    /// Parts of it may not be in the kernel's cache.
    Old = 1,
    /// A run that has not ended made it.
    New = 2,
}

impl Region<'_> {
    /// Records that the region is in a file that may run out of space, and advises the kernel how this
    /// process uses its mapping.
    pub fn set_in_file(self, age: FileAge) {
        self.header().in_file.store(age as u64, Ordering::Relaxed); // Relaxed: before any process of a run.
        self.advise();
    }

    /// Turns reading ahead off for the mapping of a new file. The kernel would fill the holes around each
    /// touched page with zeros and keep them in its cache; what the file holds is in the cache anyway.
    #[cold]
    pub(crate) fn advise(self) {
        // Relaxed: immutable while the region is in use.
        if self.header().in_file.load(Ordering::Relaxed) == FileAge::New as u64 {
            // A failure costs time only. SAFETY: changes only what is read ahead of the mapping.
            let _ = unsafe { lp_abi::syscall!(__NR_madvise, self.base(), self.length(), MADV_RANDOM) };
        }
    }

    /// Reserves space for `bytes` bytes at `offset`.
    ///
    /// # Errors
    /// `ENOSPC`, and other errors of fallocate(2) from a failing file system.
    #[cold]
    pub fn back(self, offset: usize, bytes: usize) -> Result<()> {
        if bytes == 0 || self.header().in_file.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        loop {
            // SAFETY: changes no byte of the file.
            let done =
                unsafe { lp_abi::syscall!(__NR_fallocate, self.fd(), FALLOC_FL_KEEP_SIZE, offset, bytes) };
            return match done {
                Ok(_) => Ok(()),
                Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPERM) => self.touch(offset, bytes),
                Err(Errno::EINTR) => continue,
                Err(Errno::EDQUOT) => Err(Errno::ENOSPC),
                Err(errno) => Err(errno),
            };
        }
    }

    /// Faults in the records of all chunks for reading, with one call instead of one fault for each page.
    pub fn read_chunks(self) {
        let (at, bytes) = (self.base().wrapping_add(at::CHUNKS_AT), self.chunk_count() * size_of::<Chunk>());
        // A failure costs time only. SAFETY: within the region; changes no byte.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, at, bytes, MADV_POPULATE_READ) };
    }

    /// Makes the kernel fault in `bytes` bytes at `offset` for writing, without changing them. This does not
    /// detect a full file system that allocates space only at writeback.
    #[cold]
    fn touch(self, offset: usize, bytes: usize) -> Result<()> {
        let from = offset - offset % PAGE_SIZE;
        // Space may be reserved beyond the region's end, but pages exist only up to it.
        let to = offset.saturating_add(bytes).min(self.length());
        if from >= to {
            return Ok(());
        }
        loop {
            let at = self.base().wrapping_add(from);
            // SAFETY: within the region; changes no byte.
            let done = unsafe { lp_abi::syscall!(__NR_madvise, at, to - from, MADV_POPULATE_WRITE) };
            return match done {
                Err(Errno::EFAULT) => Err(Errno::ENOSPC),
                Err(Errno::EINTR | Errno::EAGAIN) => continue,
                // Another failure costs the promise only.
                _ => Ok(()),
            };
        }
    }

    /// Reserves space for a slab that grows from `old` slots to `new`, and faults it in; both were done up to
    /// the step after `old`, except for the first step of a region in memory.
    ///
    /// # Errors
    /// As [`Region::back`].
    #[inline]
    pub fn back_growth(self, slab: at::Slab, old: usize, new: usize) -> Result<()> {
        for (old, new) in slab.parts(old).into_iter().zip(slab.parts(new)) {
            let (old, new) = (whole(old), whole(new));
            if old != new {
                self.back_steps(old, new)?;
            }
        }
        Ok(())
    }

    /// [`Region::back_growth`] of the parts `old` and `new`. If there is enough, space is reserved for an
    /// eighth more: parts that grow by turns in small steps would lie in many extents, and a copy that shares
    /// blocks costs time for each.
    #[cold]
    fn back_steps(self, old: Range<usize>, new: Range<usize>) -> Result<()> {
        let step = (new.len() / 8).clamp(STEP, MOST_AHEAD).next_power_of_two();
        let ahead = new.len().next_multiple_of(step) - new.len();
        let (more, ahead) = match new.start < old.start {
            true => (new.start..old.start, new.start.saturating_sub(ahead)..old.start),
            false => (old.end..new.end, old.end..new.end + ahead),
        };
        match self.back(ahead.start, ahead.len()) {
            Err(Errno::ENOSPC) => self.back(more.start, more.len())?,
            done => done?,
        }
        // One call costs less than a fault for each page.
        self.touch(more.start, more.len())
    }

    /// Reserves space for the first `slots` slots of a slab, in whole steps.
    ///
    /// # Errors
    /// As [`Region::back`].
    pub fn back_used(self, slab: at::Slab, slots: usize) -> Result<()> {
        for part in slab.parts(slots).map(whole) {
            self.back(part.start, part.len())?;
        }
        Ok(())
    }

    /// Reserves space for the records of process slot `index`, including its lane's, unless it was in use
    /// before.
    ///
    /// # Errors
    /// As [`Region::back`].
    pub(crate) fn back_process(self, index: u32) -> Result<()> {
        if index < self.header().process_limit.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.back_lane(index)?;
        self.back_first_table(index)
    }

    /// Reserves space for what [`at::FDS_BACKED`] promises of a descriptor table beyond its lane.
    fn back_first_table(self, index: u32) -> Result<()> {
        const FIRST: usize = at::FDS_NEAR * 8;
        self.back(at::FD_TABLES_AT + index as usize * at::FDS * 8 + FIRST, at::FDS_BACKED * 8 - FIRST)
    }

    /// Reserves space for a descriptor table that grows from `old` entries to `new`; space exists up to the
    /// step after `old`.
    ///
    /// # Errors
    /// As [`Region::back`].
    #[cold]
    pub fn back_table(self, id: ProcessId, old: usize, new: usize) -> Result<()> {
        let bytes = |entries: usize| entries.max(1).next_multiple_of(at::FDS_BACKED) * 8;
        let table = at::FD_TABLES_AT + id.index() * at::FDS * 8;
        self.back(table + bytes(old), bytes(new).saturating_sub(bytes(old)))
    }

    /// Reserves space for the records of lane `index`, unless it was in use before.
    ///
    /// # Errors
    /// As [`Region::back`].
    pub(crate) fn back_lane(self, index: u32) -> Result<()> {
        let limit = self.slots_backed();
        if index < limit {
            return Ok(());
        }
        self.back_growth(at::LANE_SLAB, limit as usize, index as usize + 1)
    }

    /// Reserves space for the change of mounts that a lane is about to make.
    ///
    /// # Errors
    /// As [`Region::back`].
    pub fn back_plan(self, id: LaneId) -> Result<()> {
        self.back(at::PLANS_AT + (id.index() & (at::LANES - 1)) * at::PLAN_SIZE, at::PLAN_SIZE)
    }

    /// Reserves space for what does not fit a lane's own list of unlinked inodes.
    ///
    /// # Errors
    /// As [`Region::back`].
    pub fn back_unlinked(self, id: LaneId) -> Result<()> {
        self.back(at::UNLINKED_AT + (id.index() & (at::LANES - 1)) * at::UNLINKED_SIZE, at::UNLINKED_SIZE)
    }

    /// Lanes, and therefore processes, whose records have been in use; at least 1.
    fn slots_backed(self) -> u32 {
        let header = self.header();
        // Relaxed: the limits only grow, and reserving twice does no harm.
        let lanes = header.lane_limit.load(Ordering::Relaxed);
        lanes.max(header.process_limit.load(Ordering::Relaxed)).max(1)
    }

    /// Reserves space for all records in use and the step after them. No process is at work.
    ///
    /// # Errors
    /// As [`Region::back`].
    pub fn back_records(self) -> Result<()> {
        self.back(0, at::LANES_AT)?;
        let slots = self.slots_backed().max(SLOTS);
        self.back_used(at::LANE_SLAB, slots as usize)?;
        for index in 1..slots.min(at::PROCESSES as u32) {
            self.back_first_table(index)?;
        }
        for lane in (1..slots.min(at::LANES as u32)).map(LaneId) {
            // Relaxed: no process is at work.
            if self.lane(lane).unlinked.far.load(Ordering::Relaxed) != 0 {
                self.back_unlinked(lane)?;
            }
        }
        self.back(at::CHUNKS_AT, self.chunk_count() * size_of::<Chunk>())?;
        self.back_slab::<OpenFile>()?;
        self.back_slab::<Inode>()?;
        self.back_slab::<Dirent>()?;
        self.back_slab::<Bucket>()?;
        self.back_slab::<LongName>()?;
        self.back_slab::<LockRecord>()?;
        self.back_slab::<Mapping>()
    }

    fn back_slab<T: Slot>(self) -> Result<()> {
        let fresh = self.header().slabs[T::SLAB].last() as usize;
        self.back_used(T::PLACE, fresh.min(T::SLOTS - 1) + 1)
    }
}

/// The steps in which a part of the region lies.
fn whole(part: Range<usize>) -> Range<usize> {
    if part.is_empty() {
        return part;
    }
    part.start / STEP * STEP..part.end.next_multiple_of(STEP)
}
