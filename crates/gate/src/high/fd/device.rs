//! /dev/zero and /dev/null: their behaviour is known, so reads and writes on them are answered here.
//!
//! The descriptor is the kernel's own, and so is every other call on it. Its [`mark`] says what reads return
//! and whether writes vanish.
//!
//! Reads of [`LEAST`] bytes or more are left to the kernel: it creates missing pages faster, and a signal can
//! end its read.

use lp_abi::linux::{
    __NR_fstat, O_ACCMODE, O_DIRECT, O_PATH, O_RDONLY, O_RDWR, O_WRONLY, S_IFCHR, S_IFMT, iovec, stat,
};
use lp_abi::{Fd, MAX_RW_COUNT, UserSlice};
use lp_region::ucopy;
use lp_vfs::bulk::LEAST;
use lp_vfs::table::entry;
use lp_vfs::task::Task;

use crate::high::fd::{descriptor, fd_info, mark};
use crate::high::frame::handler::is_in_user_space;

/// `st_rdev` of /dev/null and /dev/zero: devices 1:3 and 1:5 on every Linux.
const NULL: u64 = 0x103;
const ZERO: u64 = 0x105;

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
    mark::set(task, fd, device | mark::close_on_exec(flags));
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
    if mark::of(task, fd) & entry::INFO != 0
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
    if mark::of(task, fd) & entry::DISCARDS != 0 && is_in_user_space(buf) {
        return buf.len().min(MAX_RW_COUNT) as isize;
    }
    descriptor::without_data(task, fd)
}

/// pread(2).
pub(crate) fn pread(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> isize {
    if mark::of(task, fd) & entry::INFO != 0 {
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
