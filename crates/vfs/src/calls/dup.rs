//! dup(2) and related calls: another descriptor for an open file.

use lp_abi::{Errno, Fd, Result};
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{FileId, ProcessId, marks};

use crate::caller::task::Task;
use crate::descriptors::file;
use crate::descriptors::table::{FdTable, entry};
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

/// The open file that descriptor `fd` of another process names, marked as shared and pinned, for
/// pidfd_getfd(2). The door must install it in its table and then call [`received`]. `None` if that
/// descriptor is not ours.
///
/// The other process may run, and frees a file that is not marked once it has removed its only entry. Either
/// it sees the mark after the removal, or the removal is seen here after the mark. A call of its that is
/// under way uses the position without its lock.
///
/// # Errors
/// `EBADF` if the descriptor is closed; `EPERM` without membarrier(2).
pub fn of_process(task: &Task, process: ProcessId, fd: Fd) -> Result<Option<FileId>> {
    let Some(place) = FdTable::of(task.region, process).entry(fd) else { return Ok(None) };
    loop {
        let word = marks::named(place);
        if word & entry::DATA == 0 {
            pin::clear(task, pin::slot::OPEN);
            let is_closed = word == entry::TRANSIT || word & (entry::OPEN | entry::PARKED) == entry::PARKED;
            return if is_closed { Err(Errno::EBADF) } else { Ok(None) };
        }
        let id = FileId(word as u32);
        pin::file(task, pin::slot::OPEN, id);
        let file = task.region.file(id);
        file::share(file);
        // PAIRS: the light barrier in `open_file::left`.
        if !heavy_barrier() {
            abandon(task);
            return Err(Errno::EPERM);
        }
        // Unless the slot was freed before, and is now the file that was opened next.
        if marks::named(place) as u32 == id.0 && file::is_shared(file) {
            return Ok(Some(id));
        }
    }
}

/// Releases the result of [`dup`].
pub fn abandon(task: &Task) {
    pin::clear(task, pin::slot::OPEN);
}
