//! close(2), close_range(2).

use lp_abi::Errno;
use lp_abi::linux::{__NR_close, __NR_close_range, __NR_fcntl, F_GETFD};
use lp_vfs::close;
use lp_vfs::table::entry;
use lp_vfs::task::Task;

use super::handler::{handlers, kernel, ret};
use crate::dispatch::NOT_OURS;
use crate::{descriptor, device, placeholder};

/// `CLOSE_RANGE_UNSHARE` and `CLOSE_RANGE_CLOEXEC` of linux/close_range.h.
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

handlers! {
    /// close(2).
    fn close(task, fd: i32) {
        let word = descriptor::word(task, fd);
        if word & (entry::OPEN | entry::HOST) != entry::OPEN {
            return close_other(task, fd, word);
        }
        match close::close(task, fd) {
            Ok(()) => {
                placeholder::release(task, fd);
                0
            }
            Err(errno) => errno.to_ret(),
        }
    }

    /// close_range(2).
    fn close_range(task, first: u32, last: u32, flags: u32) {
        if first > last || flags & !(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE) != 0 {
            return NOT_OURS; // The kernel has the error for it.
        }
        close_range_slow(task, first, last, flags)
    }
}

/// close(2) of what is not a file of ours.
fn close_other(task: &'static Task<'static>, fd: i32, word: u64) -> isize {
    if word & entry::OPEN != 0 {
        // The host's object behind an inode of ours.
        ret(close::close(task, fd)) | kernel!(__NR_close, fd)
    } else if descriptor::is_hidden(task, fd) {
        Errno::EBADF.to_ret()
    } else {
        device::forget(task, fd);
        placeholder::host_closes(task, fd);
        NOT_OURS
    }
}

/// Closes or marks what is ours, and has the kernel do the rest, which is all but the gate's own descriptors.
#[cold]
fn close_range_slow(task: &'static Task<'static>, first: u32, last: u32, flags: u32) -> isize {
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        // A table of its own: shared ones are threads' alone here, and they go on with the one they have.
        let done = kernel!(__NR_close_range, u32::MAX, u32::MAX, CLOSE_RANGE_UNSHARE);
        if done < 0 {
            return done;
        }
    }
    device::forget_range(task, first, last);
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        close::cloexec_range(task, first, last);
    } else {
        placeholder::flush(task);
        close::close_range(task, first, last);
        placeholder::host_closes(task, first.min(i32::MAX as u32) as i32);
    }
    let mut from = first;
    for guarded in placeholder::guarded(task) {
        if guarded < from || guarded > last {
            continue;
        }
        if guarded > from {
            let done = kernel_close_range(task, from, guarded - 1, flags);
            if done < 0 {
                return done;
            }
        }
        from = guarded + 1;
    }
    if from > last { 0 } else { kernel_close_range(task, from, last, flags) }
}

/// The kernel's half. Placeholders are never marked close-on-exec: with that flag, ours are stepped over.
fn kernel_close_range(task: &Task, first: u32, last: u32, flags: u32) -> isize {
    if flags & CLOSE_RANGE_CLOEXEC == 0 {
        return kernel!(__NR_close_range, first, last, 0);
    }
    let limit = (task.table.len() as u32).min(last.saturating_add(1));
    let mut from = first;
    for fd in first..limit {
        if descriptor::is_file(task, fd as i32) || descriptor::is_hidden(task, fd as i32) {
            if fd > from {
                kernel!(__NR_close_range, from, fd - 1, CLOSE_RANGE_CLOEXEC);
            }
            from = fd + 1;
        }
    }
    if from > last { 0 } else { kernel!(__NR_close_range, from, last, CLOSE_RANGE_CLOEXEC) }
}

/// Whether the kernel has `fd` open.
pub fn is_open_in_kernel(fd: i32) -> bool {
    kernel!(__NR_fcntl, fd, F_GETFD) >= 0
}
