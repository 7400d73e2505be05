//! The list of this process's mappings of files of ours, for mmap(2) and later calls on the mappings.
//!
//! A mapping of a file of ours consists of the region's own pages, one kernel mapping for each contiguous
//! piece, so it is coherent with read and write and with other processes. Behind the file's last page an
//! empty memfd is mapped. Touching it raises SIGBUS, as it should; if the file has grown meanwhile, the pages
//! are mapped in ([`resized`], and [`fault`] for growth by others).
//!
//! The list is private to the process and sorted by address, in memory of its own; a fork's child has a copy.
//! The lock is held for the length of a call, with signals deferred. A child of vfork(2) changes its parent's
//! list. If the child is killed meanwhile, its parent finishes the step under way and releases the list
//! ([`settle_child`]).

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use lp_abi::linux::{
    __NR_close, __NR_futex, __NR_memfd_create, __NR_mmap, __NR_munmap, FUTEX_WAIT, FUTEX_WAKE, MAP_ANONYMOUS,
    MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, MAP_SHARED, MFD_CLOEXEC, PROT_READ, PROT_WRITE,
};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::InodeRef;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering, light_barrier};
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::low::thread::current;
use crate::low::thread::record::Thread;

/// Maximum number of mappings of one process; the kernel allows fewer.
const MOST: usize = 1 << 17;

/// Bytes of addresses reserved for the list.
const LIST_BYTES: usize = MOST * size_of::<Area>();

/// How a mapping shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Sharing {
    /// `MAP_SHARED`.
    Shared,
    /// `MAP_SHARED` of a descriptor without write access: it must not become writable.
    SharedReadOnly,
    /// `MAP_PRIVATE`.
    Private,
}

/// One mapping, or what remains of it.
#[derive(Clone, Copy)]
pub struct Area {
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
    pub fn bytes(&self) -> usize {
        self.end - self.start
    }

    /// The part within `start..end`.
    fn cut(&self, start: usize, end: usize) -> Option<Area> {
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

struct Areas {
    at: *mut Area,
    count: usize,
    step: Step,
}

/// An insertion or a removal under way. Moving an area is idempotent.
struct Step {
    kind: Change,
    /// Index of the area to insert or remove.
    index: usize,
    /// Index of the next area to be overwritten with its neighbour.
    next: usize,
    /// Number of areas afterwards.
    count: usize,
    /// The area to insert.
    area: MaybeUninit<Area>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    Insertion,
    Removal,
}

const NOTHING: Step =
    Step { kind: Change::Nothing, index: 0, next: 0, count: 0, area: MaybeUninit::uninit() };

struct Mappings {
    lock: AtomicU32,
    /// Number of areas, for callers that have none to look up.
    count: AtomicU64,
    areas: UnsafeCell<Areas>,
}

// SAFETY: the list is accessed under the lock only.
unsafe impl Sync for Mappings {}

static GLOBAL: Mappings = Mappings {
    lock: AtomicU32::new(0),
    count: AtomicU64::new(0),
    areas: UnsafeCell::new(Areas { at: core::ptr::null_mut(), count: 0, step: NOTHING }),
};

/// Whether the process has no mapping of a file of ours.
#[inline(always)]
pub fn is_empty() -> bool {
    // Relaxed: a thread that maps and another that asks at the same time may miss each other.
    GLOBAL.count.load(Ordering::Relaxed) == 0
}

/// Address and length of the list's memory; a null address before the first mapping.
pub(crate) fn list_extent() -> (usize, usize) {
    let _list = list();
    // SAFETY: the lock is held.
    (unsafe { (*GLOBAL.areas.get()).at } as usize, LIST_BYTES)
}

/// The list, locked.
pub struct LockedAreas(());

impl Drop for LockedAreas {
    fn drop(&mut self) {
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
pub fn list() -> LockedAreas {
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
pub fn settle_child(child: *const Thread) {
    // PAIRS: the child's end, which the kernel reports.
    let holder = GLOBAL.lock.load(Ordering::Acquire) & !WAITED;
    if holder == name_of(child) {
        let mut list = LockedAreas(());
        list.finish();
    }
}

impl LockedAreas {
    fn areas(&mut self) -> &mut [Area] {
        // SAFETY: the lock is held; the memory holds `count` areas.
        unsafe {
            let areas = &mut *GLOBAL.areas.get();
            if areas.at.is_null() { &mut [] } else { core::slice::from_raw_parts_mut(areas.at, areas.count) }
        }
    }

    /// Reserves space for all that one call can add: two areas split, and a new one.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn reserve(&mut self) -> Result<()> {
        // SAFETY: the lock is held.
        let areas = unsafe { &mut *GLOBAL.areas.get() };
        if areas.at.is_null() {
            let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
            let bytes = LIST_BYTES;
            // SAFETY: a new mapping; memory is allocated as it is touched.
            areas.at =
                unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, -1i32, 0) }? as *mut Area;
        }
        if areas.count + 5 > MOST { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Adds an area. The caller has reserved space, and nothing is mapped there.
    pub fn insert(&mut self, area: Area) {
        let index = self.areas().partition_point(|other| other.start < area.start);
        let count = self.areas().len();
        self.begin(Step {
            kind: Change::Insertion,
            index,
            next: count,
            count: count + 1,
            area: MaybeUninit::new(area),
        });
    }

    fn remove(&mut self, index: usize) {
        let count = self.areas().len() - 1;
        self.begin(Step { kind: Change::Removal, index, next: index, count, ..NOTHING });
    }

    fn begin(&mut self, step: Step) {
        // SAFETY: the lock is held.
        let areas = unsafe { &mut *GLOBAL.areas.get() };
        let kind = step.kind;
        areas.step = Step { kind: Change::Nothing, ..step };
        light_barrier(); // After a death the step is complete.
        areas.step.kind = kind;
        light_barrier();
        self.finish();
    }

    /// Performs the step under way, or the rest of it.
    fn finish(&mut self) {
        // SAFETY: the lock is held; the memory has space for one area more than there are.
        unsafe {
            let areas = &mut *GLOBAL.areas.get();
            let step = &mut areas.step;
            match step.kind {
                Change::Nothing => return,
                Change::Insertion => {
                    while step.next > step.index {
                        areas.at.add(step.next).write(*areas.at.add(step.next - 1));
                        light_barrier(); // After a death each area is in at least one place.
                        step.next -= 1;
                        light_barrier();
                    }
                    areas.at.add(step.index).write(step.area.assume_init());
                }
                Change::Removal => {
                    while step.next < step.count {
                        areas.at.add(step.next).write(*areas.at.add(step.next + 1));
                        light_barrier(); // After a death each area is in at least one place.
                        step.next += 1;
                        light_barrier();
                    }
                }
            }
            light_barrier();
            areas.count = step.count;
            GLOBAL.count.store(step.count as u64, Ordering::Relaxed); // Relaxed: see `is_empty`.
            light_barrier();
            step.kind = Change::Nothing;
        }
    }

    /// Removes the area that starts at `start` from the list. The caller must end its mapping record.
    pub fn drop_area(&mut self, start: usize) {
        if let Some(index) = self.areas().iter().position(|area| area.start == start) {
            self.remove(index);
        }
    }

    /// The first area that overlaps `start..end`.
    pub fn find(&mut self, start: usize, end: usize) -> Option<&mut Area> {
        self.areas().iter_mut().find(|area| area.start < end && start < area.end)
    }

    /// Splits areas so that none crosses `start` or `end`. The caller has reserved space.
    pub fn split(&mut self, start: usize, end: usize) {
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
    pub fn forget(&mut self, task: &Task, start: usize, end: usize) {
        self.split(start, end);
        while let Some(index) = self.areas().iter().position(|area| area.start < end && start < area.end) {
            let area = self.areas()[index];
            self.remove(index);
            mapping::end(task, area.of, area.bytes());
        }
    }

    /// Calls `work` on every area in `start..end`. The caller has split areas at both addresses.
    pub fn each(&mut self, start: usize, end: usize, work: &mut dyn FnMut(&mut Area)) {
        for area in self.areas().iter_mut().filter(|area| area.start < end && start < area.end) {
            work(area);
        }
    }
}

/// Maps the file's pages into `area`, whose addresses are the program's or reserved, and an empty memfd past
/// the file's end.
///
/// # Errors
/// `ENOMEM`; those of mmap(2).
pub fn fill(task: &Task, area: &mut Area) -> Result<()> {
    let kind = if area.sharing == Sharing::Private { MAP_PRIVATE } else { MAP_SHARED };
    let region = task.region.fd();
    let (start, offset, protection) = (area.start, area.offset, area.protection);
    let limit = area.bytes();
    let stopped = mapping::pieces(task, area.of, offset, limit, &mut |piece| {
        let at = start + (piece.offset - offset) as usize;
        let bytes = piece.bytes.min(start + limit - at);
        // SAFETY: the addresses belong to the mapping.
        unsafe { lp_abi::syscall!(__NR_mmap, at, bytes, protection, kind | MAP_FIXED, region, piece.region) }
            .map(drop)
    })?;
    area.beyond = (start + stopped.saturating_sub(offset) as usize).min(area.end);
    if area.beyond < area.end { past_the_end(area.beyond, area.end, protection) } else { Ok(()) }
}

/// Allocates all pages of `area` that [`fill`] will map, so that `fill` does not fail for lack of them.
///
/// # Errors
/// `ENOMEM`.
pub fn populate(task: &Task, area: &Area) -> Result<()> {
    mapping::pieces(task, area.of, area.offset, area.bytes(), &mut |_| Ok(())).map(drop)
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
pub fn resized(task: &Task) {
    if !is_empty() {
        resized_slow(task);
    }
}

#[cold]
fn resized_slow(task: &Task) {
    for area in list().areas() {
        let _ = settle(task, area);
    }
}

/// The address in an area at which the file's last page ends.
fn end_of_file(task: &Task, area: &Area) -> usize {
    let size = task.region.inode(area.of.id).size.load(Ordering::Relaxed); // Relaxed: one word.
    let pages = size.next_multiple_of(PAGE_SIZE as u64).saturating_sub(area.offset);
    area.start + pages.min(area.bytes() as u64) as usize
}

/// Adapts an area to its file's size.
fn settle(task: &Task, area: &mut Area) -> Result<()> {
    let end = end_of_file(task, area);
    if end < area.beyond {
        past_the_end(end, area.beyond, area.protection)?;
        area.beyond = end;
    } else if end > area.beyond {
        let Some(mut grown) = area.cut(area.beyond, area.end) else { return Ok(()) };
        fill(task, &mut grown)?;
        area.beyond = grown.beyond;
    }
    Ok(())
}

/// The cause of a fault at an address of the program's.
pub enum Fault {
    /// The program's own fault.
    Real,
    /// The file had grown; its pages have been mapped in.
    Mended,
    /// The pages were mapped when the list was locked: another thread may have mapped them since the fault,
    /// or the fault is real.
    Unclear,
}

/// Handles a fault at `address` that interrupted the program, not the gate.
pub fn fault(task: &Task, address: usize) -> Fault {
    let mut list = list();
    let Some(area) = list.find(address, address + 1) else { return Fault::Real };
    if address < area.beyond {
        return Fault::Unclear;
    }
    let is_mended = end_of_file(task, area) > address && settle(task, area).is_ok() && address < area.beyond;
    if is_mended { Fault::Mended } else { Fault::Real }
}

/// Maps in what files have grown by, after a call that could not use some of the program's memory. Returns
/// whether there was anything. The caller must hold no lock.
#[cold]
pub fn grown(task: &Task) -> bool {
    !is_empty()
        && list().areas().iter_mut().fold(false, |grown, area| {
            let beyond = area.beyond;
            grown | (settle(task, area).is_ok() && area.beyond > beyond)
        })
}

/// Reserves `bytes` of addresses, at `hint` if `flags` say so.
///
/// # Errors
/// Those of mmap(2).
pub fn reserve(hint: usize, bytes: usize, flags: u32) -> Result<usize> {
    let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the mapping is where the program asked for it, or where nothing is mapped.
    unsafe { lp_abi::syscall!(__NR_mmap, hint, bytes, 0, flags, -1i32, 0) }
}

/// Releases addresses.
///
/// # Errors
/// `ENOMEM` if it would leave the kernel with too many mappings.
pub fn unmap(start: usize, bytes: usize) -> Result<()> {
    // SAFETY: the addresses belong to the mapping.
    unsafe { lp_abi::syscall!(__NR_munmap, start, bytes) }.map(drop)
}

/// Before a fork: locks the list until [`after_fork`] on both sides, so that the child's copy is complete and
/// unlocked, and agrees with the mapping records that the child inherits.
pub fn before_fork() {
    core::mem::forget(list());
}

/// After a fork, on either side: unlocks the list.
pub fn after_fork() {
    drop(LockedAreas(()));
}
