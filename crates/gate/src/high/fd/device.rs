//! /dev/zero and /dev/null: their behaviour is known, so reads and writes on them are answered here.
//!
//! The descriptor is the kernel's own, and so is every other call on it. The table *marks* it: a word without
//! [`entry::OPEN`] says what reads return and whether writes vanish.
//!
//! A mark must not outlive its descriptor, or the next file with the number would read as zeros. It is
//! therefore set in the call in which the kernel gave the number, while one thread uses the table, and
//! removed before the kernel closes or replaces the descriptor. Anything else that may change the kernel's
//! table ([`distrust`]) ends marks for good. A descriptor that arrives otherwise (a socket, `/proc/self/fd`)
//! has none.
//!
//! Reads of [`LEAST`] bytes or more are left to the kernel: it creates missing pages faster, and a signal can
//! end its read.

use lp_abi::linux::{
    __NR_fstat, O_ACCMODE, O_CLOEXEC, O_DIRECT, O_PATH, O_RDONLY, O_RDWR, O_WRONLY, S_IFCHR, S_IFMT, iovec,
    stat,
};
use lp_abi::{Fd, MAX_RW_COUNT, UserSlice};
use lp_region::process::Process;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_region::{ProcessId, ucopy};
use lp_vfs::bulk::LEAST;
use lp_vfs::table::{self, Beside, FdTable, entry};
use lp_vfs::task::Task;

use crate::high::fd::{descriptor, fd_info};
use crate::high::frame::handler::is_in_user_space;
use crate::high::run::words::DISTRUSTED;

/// Bits of a mark that describe the device; or that it is a file of /proc ([`fd_info`]).
const DEVICE: u64 = entry::ZEROS | entry::EMPTY | entry::DISCARDS | entry::INFO;
/// `st_rdev` of /dev/null and /dev/zero: devices 1:3 and 1:5 on every Linux.
const NULL: u64 = 0x103;
const ZERO: u64 = 0x105;

fn distrusted(process: &Process) -> &AtomicU32 {
    &process.gate_words[DISTRUSTED]
}

/// The kernel has opened `path` with `flags` as `fd`.
#[inline]
pub(crate) fn opened(task: &Task, fd: Fd, path: &[u8], flags: u32) {
    if path == b"/dev/zero" || path == b"/dev/null" {
        opened_slow(task, fd, flags);
    }
}

/// Checks the device, because the path proves little: it may be a mount or in another root.
#[cold]
fn opened_slow(task: &Task, fd: Fd, flags: u32) {
    // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
    let found = unsafe {
        let mut found: stat = core::mem::zeroed();
        let _ = lp_abi::syscall!(__NR_fstat, fd, &raw mut found);
        found
    };
    let reads = match found.st_rdev {
        ZERO => entry::ZEROS,
        NULL => entry::EMPTY,
        _ => return,
    };
    if found.st_mode & S_IFMT != S_IFCHR || flags & (O_PATH | O_DIRECT) != 0 {
        return;
    }
    let device = match flags & O_ACCMODE {
        O_RDONLY => reads,
        O_WRONLY => entry::DISCARDS,
        O_RDWR => reads | entry::DISCARDS,
        _ => return,
    };
    mark(task, fd, device | close_on_exec(flags));
}

/// The bit for the flags of an open.
pub(crate) fn close_on_exec(flags: u32) -> u64 {
    if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 }
}

/// The mark of `fd`; 0 without one.
pub(crate) fn of(task: &Task, fd: Fd) -> u64 {
    descriptor::word(task, fd) & DEVICE
}

/// The kernel has duplicated to `fd` a descriptor whose [`of`] is `device`. `cloexec` is [`entry::CLOEXEC`]
/// or 0.
pub(crate) fn duplicated(task: &Task, device: u64, fd: Fd, cloexec: u64) {
    if device != 0 {
        mark(task, fd, device | cloexec);
    }
}

/// Marks a descriptor that the kernel has just made.
pub(crate) fn mark(task: &Task, fd: Fd, mark: u64) {
    // Relaxed, all: one thread uses the table.
    let is_one_threads =
        task.process.threads.load(Ordering::Relaxed) | distrusted(task.process).load(Ordering::Relaxed) == 0;
    // The other mark may outlive its descriptor.
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
    if word & DEVICE != 0 {
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

/// read(2) of `fd`, which is not a file of ours.
pub(crate) fn read(task: &Task, fd: Fd, buf: UserSlice) -> isize {
    let word = descriptor::word(task, fd);
    // For a bad pointer the kernel reports how far it got. SAFETY: the copy routine handles bad pointers.
    let zero = || unsafe { ucopy::zero(buf.start().as_ptr(), buf.len()) };
    if word & entry::ZEROS != 0 && (1..LEAST).contains(&buf.len()) && zero().is_ok() {
        return buf.len() as isize;
    }
    if word & entry::EMPTY != 0 && is_in_user_space(buf) {
        return 0;
    }
    if word & entry::INFO != 0
        && let Some(done) = fd_info::read(task, fd, buf)
    {
        return done;
    }
    descriptor::without_data(task, fd)
}

/// readv(2) of `fd`, which is not a file of ours.
pub(crate) fn readv(task: &Task, fd: Fd, iov: UserSlice<iovec>) -> isize {
    if of(task, fd) & entry::INFO != 0
        && let Some(done) = fd_info::readv(task, fd, iov)
    {
        return done;
    }
    descriptor::without_data(task, fd)
}

/// writev(2).
pub(crate) fn writev(task: &Task, fd: Fd, _: UserSlice<iovec>) -> isize {
    descriptor::without_data(task, fd)
}

/// write(2) to `fd`, which is not a file of ours.
pub(crate) fn write(task: &Task, fd: Fd, buf: UserSlice) -> isize {
    if of(task, fd) & entry::DISCARDS != 0 && is_in_user_space(buf) {
        return buf.len().min(MAX_RW_COUNT) as isize;
    }
    descriptor::without_data(task, fd)
}

/// pread(2).
pub(crate) fn pread(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> isize {
    if of(task, fd) & entry::INFO != 0 {
        let done = if offset < 0 { None } else { fd_info::read_at(task, fd, buf, offset) };
        return done.unwrap_or_else(|| descriptor::without_data(task, fd));
    }
    if is_good(offset, buf.len()) { read(task, fd, buf) } else { descriptor::without_data(task, fd) }
}

/// pwrite(2).
pub(crate) fn pwrite(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> isize {
    if is_good(offset, buf.len()) { write(task, fd, buf) } else { descriptor::without_data(task, fd) }
}

/// The kernel's rw_verify_area: whether the end fits an `off_t`.
fn is_good(offset: i64, count: usize) -> bool {
    offset >= 0 && i64::try_from(count).is_ok_and(|count| offset.checked_add(count).is_some())
}
