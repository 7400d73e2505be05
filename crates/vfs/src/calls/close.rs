//! close(2) and close_range(2).

use lp_abi::{Fd, Result};

use crate::caller::task::Task;
use crate::descriptors::table::{self, entry};
use crate::life::open_file;

/// Takes `fd` out of the table and lets go of its open file, its process's POSIX locks on it included. A door
/// with descriptors of the kernel's behind its own calls `table::take_out` instead.
///
/// # Errors
/// `EBADF` when it is not ours.
#[inline]
pub fn close(task: &Task, fd: Fd) -> Result<()> {
    open_file::remove(task, fd)
}

/// close_range(2) for doors without a kernel table.
pub fn close_range(task: &Task, first: u32, last: u32) {
    for (fd, _) in table::open_entries(task) {
        if (first..=last).contains(&(fd.raw() as u32)) {
            let _ = close(task, fd);
        }
    }
}

/// `close_range` with `CLOSE_RANGE_CLOEXEC`: marks what of ours lies in `first..=last`.
pub fn cloexec_range(task: &Task, first: u32, last: u32) {
    for (fd, _) in table::open_entries(task) {
        if (first..=last).contains(&(fd.raw() as u32)) {
            let _ = table::change(task, fd, entry::CLOEXEC, 0);
        }
    }
}
