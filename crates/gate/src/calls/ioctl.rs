//! ioctl(2).

use lp_abi::Errno;
use lp_abi::ioctl::{FIOCLEX, FIONCLEX};
use lp_vfs::ioctl;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;

use super::handler::{handlers, ret};
use crate::descriptor;
use crate::device;
use crate::dispatch::NOT_OURS;

handlers! {
    /// ioctl(2).
    fn ioctl(task, fd: i32, request: u32, argument: usize) {
        if !descriptor::is_file(task, fd) {
            return ioctl_other(task, fd, request);
        }
        match request {
            FIOCLEX => ret(table::change(task, fd, entry::CLOEXEC, 0)),
            FIONCLEX => ret(table::change(task, fd, 0, entry::CLOEXEC)),
            _ => ret(ioctl::ioctl(task, fd, request, argument)),
        }
    }
}

fn ioctl_other(task: &Task, fd: i32, request: u32) -> isize {
    if descriptor::is_hidden(task, fd) {
        return Errno::EBADF.to_ret();
    }
    if request == FIOCLEX || request == FIONCLEX {
        device::forget(task, fd);
    }
    if descriptor::is_listed(task, fd) {
        let _ = match request {
            FIOCLEX => table::change(task, fd, entry::CLOEXEC, 0),
            FIONCLEX => table::change(task, fd, 0, entry::CLOEXEC),
            _ => Ok(()),
        };
    }
    NOT_OURS
}
