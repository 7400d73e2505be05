//! Marks of descriptors of the kernel's of which the gate knows more than that: words of the table without
//! [`entry::OPEN`], for devices ([`device`](super::device)) and files of /proc
//! ([`fd_info`](super::fd_info)).
//!
//! A mark must not outlive its descriptor, or the next file with the number would read as zeros. It is
//! therefore set in the call in which the kernel gave the number, while one thread uses the table, and
//! removed before the kernel closes or replaces the descriptor. Anything else that may change the kernel's
//! table ([`distrust`]) ends marks for good. A descriptor that arrives otherwise (a socket, `/proc/self/fd`)
//! has none. Readers of [`entry::INFO`] ask the kernel what the descriptor is, so that mark may be set at any
//! time.

use lp_abi::Fd;
use lp_abi::linux::O_CLOEXEC;
use lp_region::ProcessId;
use lp_region::process::Process;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::table::{self, Beside, FdTable, entry};
use lp_vfs::task::Task;

use crate::high::fd::descriptor;
use crate::high::run::words::DISTRUSTED;

/// All bits of marks but close-on-exec.
const MARKS: u64 = entry::ZEROS | entry::EMPTY | entry::DISCARDS | entry::INFO;

fn distrusted(process: &Process) -> &AtomicU32 {
    &process.gate_words[DISTRUSTED]
}

/// The bit for the flags of an open.
pub(crate) fn close_on_exec(flags: u32) -> u64 {
    if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 }
}

/// The mark of `fd`; 0 without one.
pub(crate) fn of(task: &Task, fd: Fd) -> u64 {
    descriptor::word(task, fd) & MARKS
}

/// The kernel has duplicated to `fd` a descriptor whose [`of`] is `known`. `cloexec` is [`entry::CLOEXEC`]
/// or 0.
pub(crate) fn duplicated(task: &Task, known: u64, fd: Fd, cloexec: u64) {
    if known != 0 {
        set(task, fd, known | cloexec);
    }
}

/// Marks a descriptor that the kernel has just made.
pub(crate) fn set(task: &Task, fd: Fd, mark: u64) {
    // Relaxed, all: one thread uses the table.
    let is_one_threads =
        task.process.threads.load(Ordering::Relaxed) | distrusted(task.process).load(Ordering::Relaxed) == 0;
    if is_one_threads || mark & entry::INFO != 0 {
        let beside = Beside::take(task);
        let Ok(place) = table::reach(task, fd) else { return };
        if place.load(Ordering::Relaxed) == 0 {
            beside.exchange(place, 0, mark);
        }
    }
}

/// The kernel is about to close or replace `fd`, or its close-on-exec flag changes.
#[inline]
pub(crate) fn forget(task: &Task, fd: Fd) {
    if let Some(place) = task.table.covered(fd) {
        unmark(place);
    }
}

#[inline]
fn unmark(place: &AtomicU64) {
    let word = place.load(Ordering::Relaxed);
    if word & MARKS != 0 {
        // Relaxed: orders nothing. A file that another thread has put there meanwhile stays.
        let _ = place.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// [`forget`] for the marks in a table for which `is_meant` holds.
fn forget_those(table: FdTable, is_meant: impl Fn(Fd, u64) -> bool) {
    for (fd, place) in table.entries() {
        if is_meant(fd, place.load(Ordering::Relaxed)) {
            unmark(place);
        }
    }
}

/// [`forget`] for `first..=last`.
pub(crate) fn forget_range(task: &Task, first: u32, last: u32) {
    forget_those(task.table, |fd, _| (first..=last).contains(&(fd.raw() as u32)));
}

/// After exec, which has closed descriptors marked close-on-exec.
pub(crate) fn after_exec(task: &Task) {
    forget_those(task.table, |_, word| word & entry::CLOEXEC != 0);
}

/// After a fork has copied the table. If the process has other threads, this copy may not match the kernel's.
pub(crate) fn copied(task: &Task, child: ProcessId) {
    distrusted(task.region.process(child))
        .store(distrusted(task.process).load(Ordering::Relaxed), Ordering::Relaxed);
    if task.process.threads.load(Ordering::Relaxed) != 0 {
        forget_those(FdTable::of(task.region, child), |_, _| true);
    }
}

/// Ends marks for good: from here on the kernel's table changes without the gate, by io_uring.
pub(crate) fn distrust(task: &Task) {
    distrusted(task.process).store(1, Ordering::Relaxed);
    forget_those(task.table, |_, _| true);
}
