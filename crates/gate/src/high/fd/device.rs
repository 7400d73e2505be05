//! /dev/zero and /dev/null: what they give is known, so their reads and writes are answered here.
//!
//! The descriptor is the kernel's own, and so is every other call on it. The table *marks* it: a word without
//! [`entry::OPEN`] that says what reads give and whether writes vanish.
//!
//! A mark must not outlive its descriptor, or the next file on the number would read as zeros. So it is made in the call
//! in which the kernel gave the number, while one thread has the table, and is taken away before the kernel closes or
//! replaces the descriptor. Whatever else may change the kernel's table ([`distrust`]) ends marks for good. A
//! descriptor that comes in another way (a socket, `/proc/self/fd`) has none.
//!
//! Reads in [`LEAST`] are left to the kernel: it makes pages that are not there yet cheaper, and ends a read for a signal.

use lp_abi::linux::{
    __NR_fstat, O_ACCMODE, O_CLOEXEC, O_DIRECT, O_PATH, O_RDONLY, O_RDWR, O_WRONLY, S_IFCHR, S_IFMT, stat,
};
use lp_abi::{Fd, MAX_RW_COUNT, UserSlice};
use lp_region::process::Process;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_region::ucopy;
use lp_vfs::bulk::LEAST;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;

use crate::high::fd::descriptor;
use crate::high::run::words::DISTRUSTED;

/// Bits of a mark that say what the device does.
const DEVICE: u64 = entry::ZEROS | entry::EMPTY | entry::DISCARDS;
/// `st_rdev` of /dev/null and /dev/zero: devices 1:3 and 1:5, on every Linux.
const NULL: u64 = 0x103;
const ZERO: u64 = 0x105;
/// Where the addresses of programs end, with page tables of four levels.
const USER_END: usize = 0x7fff_ffff_f000;

fn distrusted(process: &Process) -> &AtomicU32 {
    &process.spare[DISTRUSTED]
}

/// The kernel has opened `path` with `flags` as `fd`.
#[inline]
pub fn opened(task: &Task, fd: Fd, path: &[u8], flags: u32) {
    if path == b"/dev/zero" || path == b"/dev/null" {
        opened_slow(task, fd, flags);
    }
}

/// The path says little (it may be a mount, or in another root): what counts is the device.
#[cold]
fn opened_slow(task: &Task, fd: Fd, flags: u32) {
    // SAFETY: all zeros is a valid `stat`, and the kernel fills it in.
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
    let cloexec = if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    mark(task, fd, device | cloexec);
}

/// What the mark of `fd` says of its device; 0 without one.
pub fn of(task: &Task, fd: Fd) -> u64 {
    descriptor::word(task, fd) & DEVICE
}

/// The kernel has put a duplicate of a descriptor with this [`of`] on `fd`; `cloexec` is [`entry::CLOEXEC`] or 0.
pub fn duplicated(task: &Task, device: u64, fd: Fd, cloexec: u64) {
    if device != 0 {
        mark(task, fd, device | cloexec);
    }
}

fn mark(task: &Task, fd: Fd, mark: u64) {
    // Relaxed, all: one thread has the table.
    if task.process.threads.load(Ordering::Relaxed) | distrusted(task.process).load(Ordering::Relaxed) != 0 {
        return;
    }
    let Ok(place) = table::reach(task, fd) else { return };
    if place.load(Ordering::Relaxed) == 0 {
        place.store(mark, Ordering::Release);
    }
}

/// The kernel is about to close or replace `fd`, or its close-on-exec flag changes.
#[inline]
pub fn forget(task: &Task, fd: Fd) {
    if let Some(place) = table::covered(task, fd) {
        unmark(place);
    }
}

#[inline]
fn unmark(place: &AtomicU64) {
    let word = place.load(Ordering::Relaxed);
    if word & DEVICE != 0 {
        // Relaxed: orders nothing. Another thread that has put a file there meanwhile keeps it.
        let _ = place.compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// [`forget`] for the marks in a table of `process` among which `is_meant`.
fn forget_those(task: &Task, table: &[AtomicU64], is_meant: impl Fn(u32, u64) -> bool) {
    let limit = task.process.fd_limit.load(Ordering::Relaxed);
    for (fd, place) in (0..limit).zip(table) {
        if is_meant(fd, place.load(Ordering::Relaxed)) {
            unmark(place);
        }
    }
}

/// [`forget`] for `first..=last`.
pub fn forget_range(task: &Task, first: u32, last: u32) {
    forget_those(task, task.table, |fd, _| (first..=last).contains(&fd));
}

/// After exec, which has closed what was to be closed.
pub fn after_exec(task: &Task) {
    forget_those(task, task.table, |_, word| word & entry::CLOEXEC != 0);
}

/// The child of a fork has a copy of the table. Beside other threads it may be that of another moment than the kernel's.
pub fn copied(task: &Task, child: &Process, table: &[AtomicU64]) {
    distrusted(child).store(distrusted(task.process).load(Ordering::Relaxed), Ordering::Relaxed);
    if task.process.threads.load(Ordering::Relaxed) != 0 {
        forget_those(task, table, |_, _| true);
    }
}

/// From now on the kernel's table changes behind the gate: by io_uring.
pub fn distrust(task: &Task) {
    distrusted(task.process).store(1, Ordering::Relaxed);
    forget_those(task, task.table, |_, _| true);
}

/// read(2) of `fd`, which is no file of ours.
pub fn read(task: &Task, fd: Fd, buf: UserSlice) -> isize {
    let word = descriptor::word(task, fd);
    // A bad pointer has the kernel say how far it got.
    // SAFETY: the copy routine answers bad pointers.
    let zero = || unsafe { ucopy::zero(buf.start().as_ptr(), buf.len()) };
    if word & entry::ZEROS != 0 && (1..LEAST).contains(&buf.len()) && zero().is_ok() {
        return buf.len() as isize;
    }
    if word & entry::EMPTY != 0 && is_users(buf) {
        return 0;
    }
    descriptor::other(task, fd)
}

/// write(2) to `fd`, which is no file of ours.
pub fn write(task: &Task, fd: Fd, buf: UserSlice) -> isize {
    if of(task, fd) & entry::DISCARDS != 0 && is_users(buf) {
        return buf.len().min(MAX_RW_COUNT) as isize;
    }
    descriptor::other(task, fd)
}

/// pread(2).
pub fn pread(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> isize {
    if is_good(offset, buf.len()) { read(task, fd, buf) } else { descriptor::other(task, fd) }
}

/// pwrite(2).
pub fn pwrite(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> isize {
    if is_good(offset, buf.len()) { write(task, fd, buf) } else { descriptor::other(task, fd) }
}

/// access_ok, for the smaller of the address spaces that there are.
fn is_users(buf: UserSlice) -> bool {
    buf.start().addr().checked_add(buf.len()).is_some_and(|end| end <= USER_END)
}

/// rw_verify_area: whether an `off_t` holds the end.
fn is_good(offset: i64, count: usize) -> bool {
    offset >= 0 && i64::try_from(count).is_ok_and(|count| offset.checked_add(count).is_some())
}
