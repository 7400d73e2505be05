//! close(2), close_range(2).

use lp_abi::linux::__NR_close_range;
use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering;
use lp_vfs::table::{self, Alone, entry};
use lp_vfs::task::Task;
use lp_vfs::{close, fork};

use crate::high::fd::{descriptor, mark, placeholder};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::low::dispatch::NOT_OURS;

/// `CLOSE_RANGE_UNSHARE` and `CLOSE_RANGE_CLOEXEC` of linux/close_range.h.
const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

handlers! {
    /// close(2).
    fn close(task, fd: Fd) {
        let word = descriptor::word(task, fd);
        if word & entry::DATA == 0 {
            return close_other(task, fd, word);
        }
        ret(placeholder::close(task, fd))
    }

    /// close_range(2).
    fn close_range(task, first: u32, last: u32, flags: u32) {
        if first > last || flags & !(CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE) != 0 {
            return NOT_OURS; // The kernel returns the error.
        }
        close_range_slow(task, first, last, flags)
    }
}

/// close(2) of anything but a file of ours.
fn close_other(task: &'static Task<'static>, fd: Fd, word: u64) -> isize {
    if word & entry::OPEN != 0 {
        // The host object behind an inode of ours.
        placeholder::host_closes(task, fd);
        ret(table::take_out(task, fd, |place| placeholder::close_slow(task, fd, place)))
    } else if word == entry::TRANSIT {
        close_in_transit(task, fd)
    } else if descriptor::is_hidden(task, fd) {
        Errno::EBADF.to_ret()
    } else {
        mark::forget(task, fd);
        placeholder::host_closes(task, fd);
        NOT_OURS
    }
}

/// close(2) of a number that another thread is opening or closing. Once that thread has released the table,
/// the number is either still being opened or belongs to its next owner.
#[cold]
fn close_in_transit(task: &'static Task<'static>, fd: Fd) -> isize {
    drop(Alone::take(task));
    match descriptor::word(task, fd) {
        entry::TRANSIT => Errno::EBADF.to_ret(),
        word if word & entry::DATA != 0 => {
            ret(table::take_out(task, fd, |place| placeholder::vacate(task, fd, place)))
        }
        word => close_other(task, fd, word),
    }
}

/// Closes or marks what is ours. The kernel does the rest, which is everything but the gate's own
/// descriptors.
#[cold]
fn close_range_slow(task: &'static Task<'static>, first: u32, last: u32, flags: u32) -> isize {
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        // A table of its own: shared tables belong to threads only here, and those keep the one they have.
        if let Err(errno) = fork::before_unsharing(task) {
            return errno.to_ret();
        }
        let done = kernel!(__NR_close_range, u32::MAX, u32::MAX, CLOSE_RANGE_UNSHARE);
        if done < 0 {
            return done;
        }
    }
    mark::forget_range(task, first, last);
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        close::cloexec_range(task, first, last);
    } else {
        placeholder::flush(task);
        for (fd, _) in task.table.open().filter(|(fd, _)| (first..=last).contains(&(fd.raw() as u32))) {
            // Another thread may have closed it meanwhile.
            let _ = table::take_out(task, fd, |place| placeholder::close_slow(task, fd, place));
        }
        placeholder::host_closes(task, Fd::new(first.min(i32::MAX as u32) as i32));
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

/// The kernel's half, which skips numbers in the table. Placeholders are never marked close-on-exec, and
/// another thread is opening what remains of ours when they are closed.
fn kernel_close_range(task: &Task, first: u32, last: u32, flags: u32) -> isize {
    let flags = flags & CLOSE_RANGE_CLOEXEC;
    let limit = task.process.fd_limit.load(Ordering::Relaxed).min(last.saturating_add(1));
    let mut from = first;
    for fd in first..limit {
        let word = descriptor::word(task, Fd::new(fd as i32));
        if word == entry::TRANSIT || word & entry::DATA != 0 || word & entry::PARKED != 0 {
            if fd > from {
                kernel!(__NR_close_range, from, fd - 1, flags);
            }
            from = fd + 1;
        }
    }
    if from > last { 0 } else { kernel!(__NR_close_range, from, last, flags) }
}
