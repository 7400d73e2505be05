//! The list of this process's mappings of files of ours, for mmap(2) and later calls on the mappings.
//!
//! A mapping of a file of ours consists of the region's own pages, one kernel mapping for each contiguous
//! piece, so it is coherent with read and write and with other processes. Behind the file's last page an
//! empty memfd is mapped. Touching it raises SIGBUS, as it should; if the file has grown meanwhile, the pages
//! are mapped in ([`resized`], and [`fault`] for growth by others). Large holes are mapped in the same way
//! until they are touched (`holes.rs`).
//!
//! The list is private to the process and sorted by address, in memory of its own (`sorted.rs`), and so is
//! the list of holes; a fork's child has a copy. The lock is held for the length of a call, with signals
//! deferred. A child of vfork(2) changes its parent's lists. If the child is killed meanwhile, its parent
//! finishes the step under way and releases the lists ([`settle_child`]).

use core::cell::UnsafeCell;

use lp_abi::linux::{
    __NR_close, __NR_futex, __NR_memfd_create, __NR_mmap, __NR_munmap, FUTEX_WAIT, FUTEX_WAKE, MAP_ANONYMOUS,
    MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, MFD_CLOEXEC, SIGBUS,
};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::InodeRef;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::high::memory::holes::{self, Content, Hole};
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
    /// First address past the file's end; `end` if there is none.
    pub beyond: usize,
}

impl Area {
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
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are accessed under the lock only.
unsafe impl Sync for Mappings {}

static GLOBAL: Mappings = Mappings {
    lock: AtomicU32::new(0),
    count: AtomicU64::new(0),
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
        holes::settle(self);
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

    fn areas(&mut self) -> &mut [Area] {
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

    /// Calls `work` on every area in `start..end`. The caller has split areas at both addresses.
    pub(crate) fn each(&mut self, start: usize, end: usize, work: &mut dyn FnMut(&mut Area)) {
        for area in self.areas().iter_mut().filter(|area| area.start < end && start < area.end) {
            work(area);
        }
    }
}

/// Maps the file's pages into `area`, whose addresses are the program's or reserved, and an empty memfd past
/// the file's end and in holes that stay. An area that is not listed must have no holes listed.
///
/// # Errors
/// `ENOMEM`; those of mmap(2).
pub(crate) fn fill(task: &Task, list: &mut LockedAreas, area: &mut Area, content: Content) -> Result<()> {
    let (start, end, protection) = (area.start, area.end, area.protection);
    match map_pieces(task, list, area, content) {
        Err(Errno::EAGAIN) if content != Content::Whole => map_pieces(task, list, area, Content::Whole)?,
        done => done?,
    }
    if area.beyond < end { past_the_end(area.beyond.max(start), end, protection) } else { Ok(()) }
}

/// Maps the pieces of the file, and sets where the file ends in `area`.
///
/// # Errors
/// `EAGAIN` if a hole would stay and the process may have none; those of [`fill`].
fn map_pieces(task: &Task, list: &mut LockedAreas, area: &mut Area, content: Content) -> Result<()> {
    let kind = if area.sharing == Sharing::Private { MAP_PRIVATE } else { MAP_SHARED };
    let region = task.region.fd();
    let (start, offset, protection, limit) = (area.start, area.offset, area.protection, area.bytes());
    let shortest = content.shortest_hole();
    let stopped = mapping::pieces(task, area.of, offset, limit, shortest, &mut |piece| {
        let at = start + (piece.offset - offset) as usize;
        let bytes = piece.bytes.min(start + limit - at);
        let Some(within) = piece.region else {
            if !holes::may_exist(task) {
                return Err(Errno::EAGAIN);
            }
            list.holes().reserve(1)?;
            past_the_end(at, at + bytes, protection)?;
            return list.add_hole(at, at + bytes);
        };
        // SAFETY: the addresses belong to the mapping.
        unsafe { lp_abi::syscall!(__NR_mmap, at, bytes, protection, kind | MAP_FIXED, region, within) }?;
        list.cut_holes(at, at + bytes);
        Ok(())
    })?;
    area.beyond = (start + stopped.saturating_sub(offset) as usize).min(area.end);
    Ok(())
}

/// Allocates all pages of `area` that [`fill`] will map, so that `fill` does not fail for lack of them.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn populate(task: &Task, area: &Area, content: Content) -> Result<()> {
    let (offset, bytes, shortest) = (area.offset, area.bytes(), content.shortest_hole());
    mapping::pieces(task, area.of, offset, bytes, shortest, &mut |_| Ok(())).map(drop)
}

/// Maps an empty memfd, which raises SIGBUS when touched.
fn past_the_end(start: usize, end: usize, protection: u32) -> Result<()> {
    // SAFETY: creates a descriptor, closed below.
    let fd = unsafe { lp_abi::syscall!(__NR_memfd_create, c"lightpath-end".as_ptr(), MFD_CLOEXEC) }?;
    // SAFETY: the addresses belong to the mapping.
    let mapped =
        unsafe { lp_abi::syscall!(__NR_mmap, start, end - start, protection, MAP_SHARED | MAP_FIXED, fd, 0) };
    // SAFETY: the descriptor was created above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
    mapped.map(drop)
}

/// Files may have changed size: where this process maps them, maps in what they have grown by and removes
/// what they have shrunk by.
#[inline]
pub(crate) fn resized(task: &Task) {
    if !is_empty() {
        grown(task);
    }
}

/// The address in an area at which the file's last page ends.
fn end_of_file(task: &Task, area: &Area) -> usize {
    let size = task.region.inode(area.of.id).size.load(Ordering::Relaxed); // Relaxed: one word.
    let pages = size.next_multiple_of(PAGE_SIZE as u64).saturating_sub(area.offset);
    area.start + pages.min(area.bytes() as u64) as usize
}

/// Adapts the area at `index` to its file's size. Returns whether it has grown.
fn settle(task: &Task, list: &mut LockedAreas, index: usize) -> Result<bool> {
    let Some(mut area) = list.areas().get(index).copied() else { return Ok(false) };
    let (end, before) = (end_of_file(task, &area), area.beyond);
    if end < before {
        past_the_end(end, before, area.protection)?;
        list.holes().reserve(1)?;
        list.cut_holes(end, before);
        area.beyond = end;
    } else if end > before {
        let Some(mut grown) = area.cut(before, area.end) else { return Ok(false) };
        fill(task, list, &mut grown, Content::of(area.protection, 0))?;
        area.beyond = grown.beyond;
    }
    list.areas()[index].beyond = area.beyond;
    Ok(area.beyond > before)
}

/// The cause of a fault at an address of the program's.
pub(crate) enum Fault {
    /// The program's own fault.
    Real,
    /// The file had grown; its pages have been mapped in.
    Mended,
    /// The pages were mapped when the list was locked: another thread may have mapped them since the fault,
    /// or the fault is real.
    Unclear,
}

/// Handles a fault at `address`, by which the kernel has raised `signal` in the program, not in the gate.
pub(crate) fn fault(task: &Task, signal: usize, address: usize) -> Fault {
    let mut list = list();
    let Some(index) = list.lists().areas.index_in(address, address + 1) else { return Fault::Real };
    if signal == SIGBUS as usize
        && let Some(is_mended) = holes::fault(task, &mut list, address)
    {
        return if is_mended { Fault::Mended } else { Fault::Real };
    }
    let area = list.areas()[index];
    if address < area.beyond {
        return Fault::Unclear;
    }
    let is_mended = end_of_file(task, &area) > address
        && settle(task, &mut list, index).is_ok()
        && address < list.areas()[index].beyond;
    if is_mended { Fault::Mended } else { Fault::Real }
}

/// Maps in what files have grown by, after a call that could not use some of the program's memory. Returns
/// whether there was anything. The caller must hold no lock.
#[cold]
pub(crate) fn grown(task: &Task) -> bool {
    if is_empty() {
        return false;
    }
    let mut list = list();
    let count = list.areas().len();
    (0..count).fold(false, |grown, index| grown | settle(task, &mut list, index).unwrap_or(false))
}

/// Reserves `bytes` of addresses, at `hint` if `flags` say so.
///
/// # Errors
/// Those of mmap(2).
pub(crate) fn reserve(hint: usize, bytes: usize, flags: u32) -> Result<usize> {
    let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the mapping is where the program asked for it, or where nothing is mapped.
    unsafe { lp_abi::syscall!(__NR_mmap, hint, bytes, 0, flags, -1i32, 0) }
}

/// Releases addresses.
///
/// # Errors
/// `ENOMEM` if it would leave the kernel with too many mappings.
pub(crate) fn unmap(start: usize, bytes: usize) -> Result<()> {
    // SAFETY: the addresses belong to the mapping.
    unsafe { lp_abi::syscall!(__NR_munmap, start, bytes) }.map(drop)
}

/// Before a fork: locks the list until [`after_fork`] on both sides, so that the child's copy is complete and
/// unlocked, and agrees with the mapping records that the child inherits.
pub(crate) fn before_fork() {
    core::mem::forget(list());
}

/// After a fork, on either side: unlocks the list.
pub(crate) fn after_fork() {
    drop(LockedAreas(()));
}
