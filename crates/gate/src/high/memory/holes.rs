//! Large holes of mapped files, which get pages when they are touched.
//!
//! A hole is mapped like memory past a file's end: as an empty memfd, which raises SIGBUS. The fault
//! allocates pages around the address, under the file's lock, and maps them; whoever else has mapped the hole
//! finds them at its own fault, and read(2) and write(2) see what they always see. A hole that is read gets
//! pages, too, as on tmpfs. Sequential faults take more pages each time, and so do all faults once holes are
//! in many pieces, because the kernel allows a process some 65,000 mappings.
//!
//! A fault must reach the process, and the kernel must not meet a hole on the program's behalf:
//! - While a process has holes, SIGBUS is not blocked (rt_sigprocmask(2)). Where a thread
//!   has blocked it before, nothing stays a hole.
//! - While a process has holes, its calls go through a table of their own, which gives pages to
//!   memory that a call names.

use core::ffi::CStr;

use lp_abi::linux::{
    __NR_close, __NR_getdents64, __NR_open, __NR_openat, __NR_read, __NR_rt_sigprocmask, AT_FDCWD,
    MAP_LOCKED, MAP_POPULATE, O_CLOEXEC, O_DIRECTORY, O_RDONLY, PROT_EXEC, SIG_BLOCK, SIGBUS,
};
use lp_abi::{Errno, PAGE_SIZE, Result, dirent64};
use lp_region::sync::{AtomicU32, Ordering, heavy_barrier};
use lp_vfs::task::Task;

use crate::High;
use crate::high::memory::areas::{self, LockedAreas};
use crate::high::memory::sorted::Span;
use crate::low::above::Above;
use crate::low::cover::patch;
use crate::low::thread::current;

/// Pages of the shortest hole that is mapped without pages.
const SHORTEST: u64 = 256;
/// Pages that a fault allocates, aligned, while there are few pieces.
const WINDOW: usize = 16;
/// Most pages that a sequence of faults allocates at once.
const LONGEST: usize = 512;
/// Pieces of holes at which the window grows fourfold, and again at the next three multiples.
const PIECES: usize = 4096;

/// Part of a mapping that is a hole.
#[derive(Clone, Copy)]
pub(crate) struct Hole {
    start: usize,
    end: usize,
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

/// Which pages of a mapping are allocated when it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// All.
    Whole,
    /// All but those of large holes.
    Present,
}

impl Content {
    /// What mmap(2) asks for.
    pub(crate) fn of(protection: u32, flags: u32) -> Content {
        let is_whole = flags & (MAP_LOCKED | MAP_POPULATE) != 0
            || protection & PROT_EXEC != 0
            || STATE.load(Ordering::Relaxed) & LOCKS_ALL != 0; // Relaxed: mlockall(2) beside mmap(2).
        if is_whole { Content::Whole } else { Content::Present }
    }

    /// Pages of the shortest hole that stays.
    pub(crate) fn shortest_hole(self) -> u64 {
        if self == Content::Whole { u64::MAX } else { SHORTEST }
    }
}

/// [`HAS_HOLES`] and [`LOCKS_ALL`].
static STATE: AtomicU32 = AtomicU32::new(0);
/// The process has holes, or is about to.
const HAS_HOLES: u32 = 1;
/// The process locks all memory that it will map.
const LOCKS_ALL: u32 = 2;

/// Whether the process has holes. A thread that blocks SIGBUS asks again afterwards ([`may_exist`]).
#[inline]
pub(crate) fn exist() -> bool {
    // PAIRS: the exchanges of `STATE`; system calls lie between this and the mask that it is about.
    STATE.load(Ordering::Acquire) & HAS_HOLES != 0
}

/// mlockall(2) or munlockall(2): whether memory that is mapped from here on is locked.
pub(crate) fn set_locks_all(locks: bool) {
    match locks {
        true => STATE.fetch_or(LOCKS_ALL, Ordering::Relaxed), // Relaxed: see `Content::of`.
        false => STATE.fetch_and(!LOCKS_ALL, Ordering::Relaxed),
    };
}

/// Before the process gets a hole: whether it may.
pub(crate) fn may_exist(task: &Task) -> bool {
    if exist() {
        return true;
    }
    // Another table already stands between the program and its calls.
    if task.run.stats.load(Ordering::Relaxed) != 0 {
        return false; // Relaxed: immutable.
    }
    // Before the masks are looked at: a thread that blocks SIGBUS either is seen here, or sees this after it
    // has blocked it. PAIRS: the acquire in `exist`.
    STATE.fetch_or(HAS_HOLES, Ordering::AcqRel);
    // Relaxed: a thread that is made from here on inherits its creator's mask.
    let is_alone = task.process.threads.load(Ordering::Relaxed) == 0;
    let others_block = || !heavy_barrier() || thread_blocks_faults() != Ok(false);
    if blocks_faults() || !is_alone && others_block() {
        STATE.fetch_and(!HAS_HOLES, Ordering::AcqRel);
        return false;
    }
    apply();
    true
}

/// After holes may have gone, with the list locked.
pub(crate) fn settle(list: &mut LockedAreas) {
    if exist() && list.holes().count() == 0 {
        STATE.fetch_and(!HAS_HOLES, Ordering::AcqRel); // PAIRS: the acquire in `exist`.
        apply();
    }
}

/// Selects the table for the process's calls.
fn apply() {
    // SAFETY: null or the calling thread's own record.
    if let Some(thread) = unsafe { current::thread().as_ref() } {
        patch::change_calls(&High::calls(thread));
    }
}

const BUS: u64 = 1 << (SIGBUS - 1);

/// The signals of a mask that holes raise.
pub(crate) const fn faults(mask: u64) -> u64 {
    mask & BUS
}

/// Whether this thread blocks SIGBUS.
fn blocks_faults() -> bool {
    let mut mask = 0u64;
    // SAFETY: the kernel writes one word.
    let _ = unsafe { lp_abi::syscall!(__NR_rt_sigprocmask, SIG_BLOCK, 0, &raw mut mask, 8) };
    mask & BUS != 0
}

/// Whether a thread of the process blocks SIGBUS.
///
/// # Errors
/// Those of open(2) and of getdents(2); `EPERM` if a filter that the process has installed may not allow
/// them.
fn thread_blocks_faults() -> Result<bool> {
    if is_filtered() {
        return Err(Errno::EPERM);
    }
    // SAFETY: a string.
    let tasks = unsafe {
        lp_abi::syscall!(__NR_open, c"/proc/self/task".as_ptr(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    }?;
    let found = any_blocks_faults(tasks);
    // SAFETY: the descriptor was opened above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, tasks) };
    found
}

fn any_blocks_faults(tasks: usize) -> Result<bool> {
    let mut room = [0u64; 128];
    loop {
        // SAFETY: the kernel writes within `room`.
        let got = unsafe { lp_abi::syscall!(__NR_getdents64, tasks, room.as_mut_ptr(), size_of_val(&room)) }?;
        if got == 0 {
            return Ok(false);
        }
        // SAFETY: the bytes of `room`, any of which are valid.
        let bytes = unsafe { core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), got) };
        if dirent64::names(bytes).any(|(_, number)| one_blocks_faults(tasks, number)) {
            return Ok(true);
        }
    }
}

/// Whether the thread with this number blocks SIGBUS. A thread that has ended does not.
fn one_blocks_faults(tasks: usize, number: &CStr) -> bool {
    const STATUS: &[u8] = b"/status\0";
    let mut path = [0u8; 32];
    let number = number.to_bytes();
    let length = number.len().min(path.len() - STATUS.len());
    path[..length].copy_from_slice(&number[..length]);
    path[length..length + STATUS.len()].copy_from_slice(STATUS);
    status(tasks as isize, &path, b"\nSigBlk:\t").is_some_and(|mask| mask & BUS != 0)
}

/// Whether a filter of seccomp(2) decides on the process's calls, as far as that can be told.
pub(crate) fn is_filtered() -> bool {
    status(AT_FDCWD as isize, b"/proc/thread-self/status\0", b"\nSeccomp:\t") != Some(0)
}

/// The hexadecimal number of a field in a status file of /proc. `None` if there is no such file; all ones if
/// it has no such field.
fn status(directory: isize, path: &[u8], field: &[u8]) -> Option<u64> {
    // SAFETY: a string.
    let fd = unsafe { lp_abi::syscall!(__NR_openat, directory, path.as_ptr(), O_RDONLY | O_CLOEXEC) }.ok()?;
    let mut text = [0u8; 2048];
    // SAFETY: the kernel writes within `text`.
    let got = unsafe { lp_abi::syscall!(__NR_read, fd, text.as_mut_ptr(), text.len()) };
    // SAFETY: the descriptor was opened above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
    let text = &text[..got.ok()?];
    let Some(line) = text.windows(field.len()).position(|line| line == field) else { return Some(u64::MAX) };
    let digits = text[line + field.len()..].iter().map_while(|digit| char::from(*digit).to_digit(16));
    Some(digits.fold(0, |number, digit| number << 4 | u64::from(digit)))
}

impl LockedAreas {
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

    /// The pages to allocate for a fault at `address` in a hole.
    fn window(&mut self, address: usize, hole: (usize, usize)) -> (usize, usize) {
        let page = address & !(PAGE_SIZE - 1);
        let pieces = self.holes().count();
        let widened = WINDOW << (2 * (pieces / PIECES).min(4));
        let ahead = self.ahead();
        let (start, pages) = match ahead.next == page {
            true => (page, (ahead.pages * 2).clamp(widened, LONGEST.max(widened))),
            false => (page & !(widened * PAGE_SIZE - 1), widened),
        };
        let end = (start + pages * PAGE_SIZE).min(hole.1);
        ahead.next = end;
        ahead.pages = pages;
        // A list without space for another piece loses one.
        let start = if pieces + 1 < Hole::MOST { start.max(hole.0) } else { hole.0 };
        (start, end)
    }
}

/// Handles a fault at `address`: whether it was in a hole, which now has pages; `None` if there is no hole.
pub(crate) fn fault(task: &Task, list: &mut LockedAreas, address: usize) -> Option<bool> {
    let hole = list.holes().find(address, address + 1).map(|hole| (hole.start, hole.end))?;
    let area = list.find(address, address + 1).map(|area| *area)?;
    let (start, end) = list.window(address, (hole.0.max(area.start), hole.1.min(area.end)));
    if give_pages(task, list, start, end).is_err() {
        // There may be space for one page still.
        let page = address & !(PAGE_SIZE - 1);
        let _ = give_pages(task, list, page, page + PAGE_SIZE);
    }
    Some(list.hole_in(address, address + 1).is_none())
}

/// Gives pages to what of `start..end` is a hole, as far as files reach.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn give_pages(task: &Task, list: &mut LockedAreas, start: usize, end: usize) -> Result<()> {
    let mut at = start;
    while let Some((from, to)) = list.hole_in(at, end) {
        let Some(area) = list.find(from, to).map(|area| *area) else { break };
        let Some(mut part) = area.cut(from, to) else { break };
        at = part.end;
        list.holes().reserve(1)?;
        areas::fill(task, list, &mut part, Content::Whole)?;
    }
    Ok(())
}

/// Gives pages to the holes in `length` bytes at `address`, as far as there are some.
pub(crate) fn touch(task: &Task, address: usize, length: usize) {
    if exist() && length != 0 {
        let end = address.saturating_add(length);
        let end = end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(end);
        let _ = give_pages(task, &mut areas::list(), address & !(PAGE_SIZE - 1), end);
    }
}
