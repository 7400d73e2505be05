//! fcntl(2), flock(2).

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::table::entry;
use lp_vfs::task::Task;
use lp_vfs::{fcntl, flock, record_lock};

use crate::high::calls::dup::{dup_other, duplicate};
use crate::high::calls::signal_owner;
use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::{descriptor, mark};
use crate::high::frame::handler::{given, handlers, interruptible, kernel, ret};
use crate::high::watch::{dnotify, lease, signalled};
use crate::low::dispatch::NOT_OURS;

/// `F_CREATED_QUERY` of linux/fcntl.h, Linux 6.12.
const F_CREATED_QUERY: u32 = 1028;
/// `F_ALL_SEALS`.
const KNOWN_SEALS: u32 = 0x3f;

handlers! {
    /// fcntl(2).
    fn fcntl(task, fd: Fd, command: u32, argument: usize) {
        if !descriptor::is_file(task, fd) {
            return fcntl_other(task, fd, command, argument);
        }
        match command {
            F_GETFD => ret(fcntl::get_fd(task, fd)),
            F_SETFD => ret(fcntl::set_fd(task, fd, argument as u32)),
            F_GETFL => ret(fcntl::get_fl(task, fd)),
            F_DUPFD => ret(duplicate(task, fd, argument as u32, 0)),
            F_DUPFD_CLOEXEC => ret(duplicate(task, fd, argument as u32, entry::CLOEXEC)),
            F_DUPFD_QUERY => query(task, fd, Fd::new(argument as i32)),
            _ => fcntl_file(task, fd, command, argument),
        }
    }

    /// flock(2).
    fn flock(task, fd: Fd, operation: u32) {
        file_or_return!(task, fd);
        interruptible(ret(flock::flock(task, fd, operation)))
    }
}

/// The other commands. All but one fail on an `O_PATH` descriptor.
fn fcntl_file(task: &'static Task<'static>, fd: Fd, command: u32, argument: usize) -> isize {
    let mode = match task.fget_any(fd) {
        Ok(held) => held.file.mode.load(Ordering::Relaxed), // Relaxed: immutable.
        Err(errno) => return errno.to_ret(),
    };
    if command == F_CREATED_QUERY {
        return isize::from(mode & file_mode::CREATED != 0);
    }
    if mode & file_mode::PATH != 0 {
        return Errno::EBADF.to_ret();
    }
    match command {
        F_SETFL => ret(fcntl::set_fl(task, fd, argument as u32)),
        _ if record_lock::is_command(command) => {
            interruptible(ret(record_lock::fcntl(task, fd, command, given(argument))))
        }
        F_GETOWN | F_SETOWN | F_GETSIG | F_SETSIG | F_SETOWN_EX | F_GETOWN_EX => {
            ret(signal_owner::fcntl(task, fd, command, argument).inspect(|_| signalled::copy(task, fd)))
        }
        F_GETLEASE => ret(lease::get(task, fd)),
        F_SETLEASE => ret(lease::set(task, fd, argument as u32)),
        F_NOTIFY => ret(dnotify::set(task, fd, argument as u32)),
        F_GET_SEALS if mode & file_mode::REGULAR == 0 => Errno::EINVAL.to_ret(),
        // Like tmpfs for a file that is not a memfd.
        F_GET_SEALS => F_SEAL_SEAL as isize,
        // The kernel's memfd_add_seals, for a file that is sealed against seals.
        F_ADD_SEALS if mode & file_mode::WRITE != 0 && argument as u32 & !KNOWN_SEALS != 0 => {
            Errno::EINVAL.to_ret()
        }
        F_ADD_SEALS => Errno::EPERM.to_ret(),
        F_GET_RW_HINT => {
            // SAFETY: the copy routine handles bad pointers.
            ret(fcntl::write_hint(task, fd)
                .and_then(|hint| unsafe { ucopy::put(argument as *mut u64, &hint) }))
        }
        F_SET_RW_HINT => {
            // SAFETY: as above.
            let wanted = || unsafe { ucopy::get(argument as *const u64) };
            ret(fcntl::set_write_hint(task, fd, wanted))
        }
        F_GETPIPE_SZ | F_SETPIPE_SZ => Errno::EBADF.to_ret(),
        _ => Errno::EINVAL.to_ret(),
    }
}

/// `F_DUPFD_QUERY`: whether two descriptors refer to the same open file.
fn query(task: &Task, fd: Fd, other: Fd) -> isize {
    if !is_open(task, other) {
        return Errno::EBADF.to_ret();
    }
    isize::from(
        descriptor::is_file(task, other) && task.table.load(fd) as u32 == task.table.load(other) as u32,
    )
}

fn fcntl_other(task: &'static Task<'static>, fd: Fd, command: u32, argument: usize) -> isize {
    if descriptor::is_hidden(task, fd) {
        return Errno::EBADF.to_ret();
    }
    match command {
        F_DUPFD => dup_other(task, fd, argument as u32, 0),
        F_DUPFD_QUERY if descriptor::is_hidden(task, Fd::new(argument as i32)) => Errno::EBADF.to_ret(),
        F_DUPFD_CLOEXEC => dup_other(task, fd, argument as u32, entry::CLOEXEC),
        F_SETFD if descriptor::is_listed(task, fd) => {
            let _ = fcntl::set_fd(task, fd, argument as u32);
            NOT_OURS
        }
        F_SETFL if descriptor::is_listed(task, fd) => {
            let _ = fcntl::set_fl(task, fd, argument as u32);
            NOT_OURS
        }
        F_SETFD => {
            mark::forget(task, fd);
            NOT_OURS
        }
        _ => NOT_OURS,
    }
}

/// Whether `fd` is open, ours or the host's.
pub(crate) fn is_open(task: &Task, fd: Fd) -> bool {
    descriptor::is_listed(task, fd)
        || !descriptor::is_hidden(task, fd) && kernel!(__NR_fcntl, fd, F_GETFD) >= 0
}
