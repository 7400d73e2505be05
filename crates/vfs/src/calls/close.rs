//! close(2) and close_range(2).

use lp_abi::{Fd, Result};

use crate::caller::task::Task;
use crate::descriptors::table::{self, entry};
use crate::life::open_file;

/// Removes `fd` from the table and releases its open file, including its process's POSIX locks on the file. A
/// door with kernel descriptors behind its own must call `table::take_out` instead.
///
/// # Errors
/// `EBADF` if it is not ours.
#[inline]
pub fn close(task: &Task, fd: Fd) -> Result<()> {
    open_file::remove(task, fd)
}

/// close_range(2) for doors without a kernel table.
pub fn close_range(task: &Task, first: u32, last: u32) {
    for (fd, _) in task.table.open() {
        if (first..=last).contains(&(fd.raw() as u32)) {
            let _ = close(task, fd);
        }
    }
}

/// `close_range` with `CLOSE_RANGE_CLOEXEC`: marks our descriptors in `first..=last`.
pub fn cloexec_range(task: &Task, first: u32, last: u32) {
    for (fd, _) in task.table.open() {
        if (first..=last).contains(&(fd.raw() as u32)) {
            let _ = table::change(task, fd, entry::CLOEXEC, 0);
        }
    }
}
