//! dup(2) and related calls: another descriptor for an open file.

use lp_abi::{Fd, Result};
use lp_region::FileId;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::descriptors::file;
use crate::lane::pin;
use crate::life::open_file;

/// The open file of `fd`, marked as duplicated and pinned. The door must install it under another number with
/// `table::install`: `dup`, `dup2`, `dup3`, `fcntl(F_DUPFD)`, and the receiver's half of `SCM_RIGHTS`. If it
/// gets no number, it must call [`abandon`].
///
/// # Errors
/// `EBADF` if it is not ours.
pub fn dup(task: &Task, fd: Fd) -> Result<FileId> {
    let held = task.fget_any(fd)?;
    file::duplicate(held.file);
    pin::file(task, pin::slot::OPEN, held.id);
    Ok(held.id)
}

/// Installs the result of [`dup`] at `fd`; `flags` as for `table::install`.
///
/// # Errors
/// `EBADF`.
pub fn install(task: &Task, fd: Fd, id: FileId, flags: u64) -> Result<()> {
    open_file::install_and(task, fd, id, flags, || task.table.moved()).inspect_err(|_| abandon(task))
}

/// The result of [`dup`] is in the table from which it came.
pub fn arrived(task: &Task) {
    task.table.moved();
    pin::clear(task, pin::slot::OPEN);
}

/// A file received over a socket is in a table.
pub fn received(task: &Task) {
    // A scan under way may have passed the new entry but not reached the old one; this invalidates it. PAIRS:
    // the loads around the scan in `sweep`.
    task.region.header().moves.fetch_add(1, Ordering::Release);
    pin::clear(task, pin::slot::OPEN);
}

/// Releases the result of [`dup`].
pub fn abandon(task: &Task) {
    pin::clear(task, pin::slot::OPEN);
}
