//! close(2) and close_range(2).

use lp_abi::Result;
use lp_region::records::inode_flags;
use lp_region::sync::Ordering;

use crate::lock;
use crate::table::{self, entry};
use crate::task::Task;

/// Takes `fd` out of the table and lets go of its open file. The door closes or parks the kernel's placeholder.
///
/// # Errors
/// `EBADF` when it is not ours.
#[inline]
pub fn close(task: &Task, fd: i32) -> Result<()> {
    // Relaxed: only this process makes it nonzero.
    if task.process.posix_locks.load(Ordering::Relaxed) != 0 {
        drop_locks_slow(task, fd)?;
    }
    table::remove(task, fd)
}

/// close(2) drops the process's POSIX locks on the file, whichever descriptor they were taken through.
#[cold]
fn drop_locks_slow(task: &Task, fd: i32) -> Result<()> {
    let held = table::fget_any(task, fd)?;
    if held.inode.flags.load(Ordering::Relaxed) & inode_flags::LOCKED != 0 {
        lock::drop_posix(task, held.inode_id());
    }
    Ok(())
}

/// Closes what of ours lies in `first..=last`; the kernel closes the rest, placeholders included.
pub fn close_range(task: &Task, first: u32, last: u32) {
    for (fd, _) in table::open_entries(task) {
        if (first..=last).contains(&(fd as u32)) {
            let _ = close(task, fd);
        }
    }
}

/// `close_range` with `CLOSE_RANGE_CLOEXEC`: marks what of ours lies in `first..=last`.
pub fn cloexec_range(task: &Task, first: u32, last: u32) {
    for (fd, _) in table::open_entries(task) {
        if (first..=last).contains(&(fd as u32)) {
            let _ = table::change(task, fd, entry::CLOEXEC, 0);
        }
    }
}
