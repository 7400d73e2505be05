//! The list of this process's mappings of files of ours, for mmap(2) and later calls on the mappings.
//!
//! A mapping of a file of ours consists of the region's own pages, one kernel mapping for each contiguous
//! piece, so it is coherent with read and write and with other processes. Behind the file's last page an
//! empty memfd is mapped. Touching it raises SIGBUS, as it should; if the file has grown meanwhile, the pages
//! are mapped in (`resize.rs`, and `fault.rs` for growth by others). Large holes are mapped in the same way
//! until they are touched (`holes.rs`). Pages that other processes cut off raise SIGBUS, too (`missing.rs`).
//!
//! The list is private to the process and sorted by address, in memory of its own (`sorted.rs`), and so is
//! the list of holes; a fork's child has a copy. The lock is held for the length of a call, with signals
//! deferred. A child of vfork(2) changes its parent's lists. If the child is killed meanwhile, its parent
//! finishes the step under way and releases the lists ([`settle_child`]).

use core::cell::UnsafeCell;

use lp_abi::linux::{__NR_futex, FUTEX_WAIT, FUTEX_WAKE, MAP_PRIVATE, MAP_SHARED};
use lp_abi::{PAGE_SIZE, Result};
use lp_region::InodeRef;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::high::memory::bus;
use crate::high::memory::sorted::{Sorted, Span};
use crate::low::thread::current;
use crate::low::thread::record::Thread;

/// Maximum number of mappings of one process; the kernel allows fewer.
const MOST: usize = 1 << 17;

/// How a mapping shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Sharing {
    /// `MAP_SHARED`.
    Shared,
    /// `MAP_SHARED` of a descriptor without write access: it must not become writable.
    SharedReadOnly,
    /// `MAP_PRIVATE`.
    Private,
}

impl Sharing {
    /// The flag of mmap(2).
    pub(crate) fn flag(self) -> u32 {
        if self == Sharing::Private { MAP_PRIVATE } else { MAP_SHARED }
    }
}

/// One mapping, or what remains of it.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    /// First address, page-aligned.
    pub start: usize,
    /// Address behind the last, page-aligned.
    pub end: usize,
    /// The file.
    pub of: InodeRef,
    /// Offset in the file of the first address.
    pub offset: u64,
    /// `PROT_*` as last set.
    pub protection: u32,
    /// How it is shared.
    pub sharing: Sharing,
    /// The file may be executed as code: its mount is not `noexec`.
    pub may_execute: bool,
    /// First address past the file's end; `end` if there is none.
    pub beyond: usize,
    /// A fault in a hole has told that the program has written to the file since the last look. The pages
    /// that came by it are not protected (`written.rs`).
    pub is_written: bool,
    /// A child of fork(2) does not get the mapping (`MADV_DONTFORK`).
    pub is_left_out: bool,
}

impl Area {
    /// The address at which the file's last page ends.
    pub(crate) fn end_of_file(&self, task: &Task) -> usize {
        let size = task.region.inode(self.of.id).size.load(Ordering::Relaxed); // Relaxed: one word.
        let pages = size.next_multiple_of(PAGE_SIZE as u64).saturating_sub(self.offset);
        self.start + pages.min(self.bytes() as u64) as usize
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// The part within `start..end`.
    pub(crate) fn cut(&self, start: usize, end: usize) -> Option<Area> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| Area {
            start: from,
            end: to,
            offset: self.offset + (from - self.start) as u64,
            beyond: self.beyond.clamp(from, to),
            ..*self
        })
    }
}

impl Span for Area {
    const MOST: usize = MOST;
    fn start(&self) -> usize {
        self.start
    }
    fn end(&self) -> usize {
        self.end
    }
}

/// Part of a mapping that is a hole.
#[derive(Clone, Copy)]
pub(crate) struct Hole {
    /// First address.
    pub(crate) start: usize,
    /// Address behind the last.
    pub(crate) end: usize,
}

impl Span for Hole {
    const MOST: usize = 1 << 16;
    fn start(&self) -> usize {
        self.start
    }
    fn end(&self) -> usize {
        self.end
    }
}

struct Lists {
    areas: Sorted<Area>,
    holes: Sorted<Hole>,
    ahead: Ahead,
}

/// The last fault in a hole.
pub(crate) struct Ahead {
    /// Address behind the pages that it allocated.
    pub(crate) next: usize,
    /// Their number.
    pub(crate) pages: usize,
}

struct Mappings {
    lock: AtomicU32,
    /// Number of areas, for callers that have none to look up.
    count: AtomicU64,
    /// Nonzero once one has reached beyond the end of its file.
    reached: AtomicU32,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are accessed under the lock only.
unsafe impl Sync for Mappings {}

static GLOBAL: Mappings = Mappings {
    lock: AtomicU32::new(0),
    count: AtomicU64::new(0),
    reached: AtomicU32::new(0),
    lists: UnsafeCell::new(Lists {
        areas: Sorted::new(),
        holes: Sorted::new(),
        ahead: Ahead { next: 0, pages: 0 },
    }),
};

/// Whether the process has no mapping of a file of ours.
#[inline(always)]
pub(crate) fn is_empty() -> bool {
    // Relaxed: a thread that maps and another that asks at the same time may miss each other.
    GLOBAL.count.load(Ordering::Relaxed) == 0
}

/// Notes that an area reaches beyond the end of its file.
pub(crate) fn reaches_beyond() {
    GLOBAL.reached.store(1, Ordering::Relaxed); // Relaxed: as in `is_empty`.
}

/// Whether an area may reach beyond the end of its file.
#[inline(always)]
pub(crate) fn may_reach_beyond() -> bool {
    GLOBAL.reached.load(Ordering::Relaxed) != 0 // Relaxed: as in `is_empty`.
}

/// Whether `address` is in the lists' memory.
pub(crate) fn holds_list(address: usize) -> bool {
    let mut list = list();
    let lists = list.lists();
    let within = |(start, bytes): (usize, usize)| start != 0 && (start..start + bytes).contains(&address);
    within(lists.areas.extent()) || within(lists.holes.extent())
}

/// The list, locked.
pub(crate) struct LockedAreas(());

impl Drop for LockedAreas {
    fn drop(&mut self) {
        bus::settle(self.holes().count());
        // PAIRS: the acquires in `list`.
        if GLOBAL.lock.swap(0, Ordering::Release) & WAITED != 0 {
            // SAFETY: the word is a static.
            let _ = unsafe { lp_abi::syscall!(__NR_futex, &raw const GLOBAL.lock, FUTEX_WAKE, 1) };
        }
    }
}

/// Set in the lock's word if a thread waits. The other bits identify the holder.
const WAITED: u32 = 1 << 31;

/// Identifies a thread in the lock's word: records of threads lie within few GiB of each other.
fn name_of(thread: *const Thread) -> u32 {
    const { assert!(align_of::<Thread>() >= 16) };
    ((thread as usize >> 4) as u32 & !WAITED).max(1)
}

/// Locks the list (Drepper, "Futexes are tricky").
pub(crate) fn list() -> LockedAreas {
    let me = name_of(current::thread());
    // PAIRS: the release in `drop`.
    if GLOBAL.lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
        list_slow(me);
    }
    LockedAreas(())
}

#[cold]
fn list_slow(me: u32) {
    loop {
        let seen = GLOBAL.lock.fetch_or(WAITED, Ordering::Relaxed); // Relaxed: this acquires nothing.
        if seen & !WAITED != 0 {
            // SAFETY: the word is a static.
            let _ =
                unsafe { lp_abi::syscall!(__NR_futex, &raw const GLOBAL.lock, FUTEX_WAIT, seen | WAITED, 0) };
            continue;
        }
        // Keep WAITED set, because others may wait too. PAIRS: the release in `drop`.
        if GLOBAL.lock.compare_exchange(WAITED, me | WAITED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// After a child in this process's memory, whose record is `child`, has execed or ended. If it was killed
/// while it held the list, finishes its step and releases the list.
#[inline]
pub(crate) fn settle_child(child: *const Thread) {
    // PAIRS: the child's end, which the kernel reports.
    let holder = GLOBAL.lock.load(Ordering::Acquire) & !WAITED;
    if holder == name_of(child) {
        let mut list = LockedAreas(());
        list.finish();
    }
}

impl LockedAreas {
    fn lists(&mut self) -> &mut Lists {
        // SAFETY: the lock is held.
        unsafe { &mut *GLOBAL.lists.get() }
    }

    /// The areas, by address.
    pub(crate) fn areas(&mut self) -> &mut [Area] {
        self.lists().areas.items()
    }

    /// The parts of areas that are holes.
    pub(crate) fn holes(&mut self) -> &mut Sorted<Hole> {
        &mut self.lists().holes
    }

    /// The last fault in a hole.
    pub(crate) fn ahead(&mut self) -> &mut Ahead {
        &mut self.lists().ahead
    }

    /// Records that `start..end` is a hole.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn add_hole(&mut self, start: usize, end: usize) -> Result<()> {
        self.holes().reserve(1)?;
        self.holes().insert(Hole { start, end });
        Ok(())
    }

    /// The hole that overlaps `start..end` first, cut to it.
    pub(crate) fn hole_in(&mut self, start: usize, end: usize) -> Option<(usize, usize)> {
        self.holes().find(start, end).map(|hole| (hole.start.max(start), hole.end.min(end)))
    }

    /// Records that nothing in `start..end` is a hole any more. The caller has reserved space for another
    /// one.
    pub(crate) fn cut_holes(&mut self, start: usize, end: usize) {
        while let Some(index) = self.holes().index_in(start, end) {
            let holes = self.holes();
            let hole = holes.items()[index];
            match (hole.start < start, end < hole.end) {
                (false, false) => holes.remove(index),
                (false, true) => holes.items()[index].start = end,
                (true, false) => holes.items()[index].end = start,
                (true, true) => {
                    holes.items()[index].end = start;
                    holes.insert(Hole { start: end, end: hole.end });
                }
            }
        }
    }

    /// Reserves space for all that one call can add: two areas split, and a new one; a hole split.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        self.lists().areas.reserve(5)?;
        self.lists().holes.reserve(2)
    }

    /// Adds an area. The caller has reserved space, and nothing is mapped there.
    pub(crate) fn insert(&mut self, area: Area) {
        self.lists().areas.insert(area);
        self.counted();
    }

    fn remove(&mut self, index: usize) {
        self.lists().areas.remove(index);
        self.counted();
    }

    /// Publishes the number of areas.
    fn counted(&mut self) {
        let count = self.lists().areas.count() as u64;
        GLOBAL.count.store(count, Ordering::Relaxed); // Relaxed: see `is_empty`.
    }

    /// Performs the steps under way, or the rest of them.
    fn finish(&mut self) {
        self.lists().areas.finish();
        self.lists().holes.finish();
        self.counted();
    }

    /// Removes the area that starts at `start` from the list. The caller must end its mapping record.
    pub(crate) fn drop_area(&mut self, start: usize) {
        if let Some(index) = self.areas().iter().position(|area| area.start == start) {
            self.remove(index);
        }
    }

    /// The first area that overlaps `start..end`.
    pub(crate) fn find(&mut self, start: usize, end: usize) -> Option<&mut Area> {
        self.lists().areas.find(start, end)
    }

    /// The index of the area at an address.
    pub(crate) fn index_at(&mut self, address: usize) -> Option<usize> {
        self.lists().areas.index_in(address, address + 1)
    }

    /// Splits areas so that none crosses `start` or `end`. The caller has reserved space.
    pub(crate) fn split(&mut self, start: usize, end: usize) {
        for at in [start, end] {
            let Some(area) = self.find(at, at + 1).filter(|area| area.start < at).map(|area| *area) else {
                continue;
            };
            let (Some(low), Some(high)) = (area.cut(area.start, at), area.cut(at, area.end)) else {
                continue;
            };
            if let Some(found) = self.find(at, at + 1) {
                *found = low;
            }
            self.insert(high);
        }
    }

    /// Removes the areas within `start..end`, which the kernel has unmapped or replaced. The caller reserved
    /// space before the kernel's call, so the list can follow whatever the kernel did.
    pub(crate) fn forget(&mut self, task: &Task, start: usize, end: usize) {
        self.split(start, end);
        self.cut_holes(start, end);
        while let Some(index) = self.lists().areas.index_in(start, end) {
            let area = self.areas()[index];
            self.remove(index);
            mapping::end(task, area.of, area.bytes());
        }
    }

    /// In a child of fork(2): removes the areas that the kernel has left out.
    #[cold]
    pub(crate) fn forget_left_out(&mut self, task: &Task) {
        while let Some(area) = self.areas().iter().find(|area| area.is_left_out).copied() {
            if self.reserve().is_err() {
                return; // Without memory the child does not get far.
            }
            self.forget(task, area.start, area.end);
        }
    }

    /// Removes areas within `start..end`, where the kernel has found that nothing was mapped: a child of
    /// vfork(2) has unmapped them and was killed before it could tell. The mapping records are not ended,
    /// because they may be the child's.
    pub(crate) fn drop_stale(&mut self, start: usize, end: usize) {
        self.split(start, end);
        while let Some(index) = self.lists().areas.index_in(start, end) {
            self.remove(index);
        }
    }

    /// Calls `work` on every area that overlaps `start..end`.
    pub(crate) fn each(&mut self, start: usize, end: usize, work: &mut dyn FnMut(&mut Area)) {
        let first = self.lists().areas.index_in(start, end).unwrap_or(usize::MAX);
        self.areas().iter_mut().skip(first).take_while(|area| area.start < end).for_each(work);
    }
}

/// Before a fork by a thread that is not alone with its memory: locks the list until [`after_fork`] on both
/// sides, so that the child's copy is complete and unlocked, and agrees with the mapping records that the
/// child inherits.
pub(crate) fn before_fork() {
    core::mem::forget(list());
}

/// After a fork, on either side: unlocks the list if [`before_fork`] locked it. Otherwise there is no other
/// thread that could have, and the lock's page stays untouched.
pub(crate) fn after_fork() {
    // Relaxed: the thread's own store, or no store.
    if GLOBAL.lock.load(Ordering::Relaxed) != 0 {
        drop(LockedAreas(()));
    }
}
