//! dup(2) and its like: a second descriptor for an open file.

use lp_abi::{Fd, Result};
use lp_region::FileId;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::descriptors::{file, table};
use crate::lane::pin;
use crate::life::open_file;

/// The open file of `fd`, marked shared and pinned, for the door to install under another number with
/// `table::install`: `dup`, `dup2`, `dup3`, `fcntl(F_DUPFD)`, and the receiver's half of `SCM_RIGHTS`.
/// If no number can be had, the door calls [`abandon`].
///
/// # Errors
/// `EBADF` when it is not ours.
pub fn dup(task: &Task, fd: Fd) -> Result<FileId> {
    let held = table::fget_any(task, fd)?;
    file::duplicate(held.file);
    pin::file(task, pin::slot::OPEN, held.id);
    Ok(held.id)
}

/// Installs what [`dup`] gave at `fd`; `flags` as for `table::install`.
///
/// # Errors
/// `EBADF`.
pub fn install(task: &Task, fd: Fd, id: FileId, flags: u64) -> Result<()> {
    open_file::install_and(task, fd, id, flags, || table::moved(task)).inspect_err(|_| abandon(task))
}

/// What [`dup`] gave stands in the table it came from.
pub fn arrived(task: &Task) {
    table::moved(task);
    pin::clear(task, pin::slot::OPEN);
}

/// What came over a socket stands in a table.
pub fn received(task: &Task) {
    // A scan under way may have passed the new entry and not reached the old one: what it saw does not count.
    // PAIRS: the loads around the scan in `sweep`.
    task.region.header().moves.fetch_add(1, Ordering::Release);
    pin::clear(task, pin::slot::OPEN);
}

/// Lets go of what [`dup`] gave.
pub fn abandon(task: &Task) {
    pin::clear(task, pin::slot::OPEN);
}
