//! dup(2) and related calls: another descriptor for an open file.

use lp_abi::{Errno, Fd, Result};
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{FileId, ProcessId, marks};

use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;
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
#[inline]
pub fn dup(task: &Task, fd: Fd) -> Result<FileId> {
    let entry = task.table.load(fd);
    let Some(file) = task.own_any(entry) else { return dup_beside(task, fd) };
    file::duplicate(file);
    let id = FileId(entry as u32);
    pin::file(task, pin::slot::OPEN, id);
    Ok(id)
}

/// [`dup`] while threads share the table.
#[inline(never)]
fn dup_beside(task: &Task, fd: Fd) -> Result<FileId> {
    loop {
        let held = task.fget_any(fd)?;
        file::duplicate(held.file);
        if is_named_still(task, fd, held.id) {
            pin::file(task, pin::slot::OPEN, held.id);
            return Ok(held.id);
        }
    }
}

/// Whether the entry of `fd` names an open file that the caller has pinned and marked as shared. If not, the
/// thread that took the file out of the entry may not have seen the mark ([`crate::life::grace`]), so nothing
/// may name the file any more.
#[inline]
fn is_named_still(task: &Task, fd: Fd, id: FileId) -> bool {
    // Relaxed: only this thread can have created the second thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 {
        return true;
    }
    task.table.covered(fd).is_some_and(|place| {
        let word = marks::named(place);
        word & entry::OPEN != 0 && word as u32 == id.0 && marks::confirm(place, word)
    })
}

/// The open file of `fd`, marked as shared: it is about to be sent to another table.
///
/// # Errors
/// `EBADF` if it is not ours.
pub fn share<'r>(task: &Task<'r>, fd: Fd) -> Result<HeldFile<'r>> {
    loop {
        let held = task.fget(fd)?;
        file::share(held.file);
        if is_named_still(task, fd, held.id) {
            return Ok(held);
        }
    }
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
/// pidfd_getfd(2), with [`entry::HOST`] or 0. The door must install it in its table and then call
/// [`received`]. `None` if that descriptor is not ours.
///
/// The other process may run, and frees a file that is not marked once it has removed its only entry. Either
/// it sees the mark after the removal, or the removal is seen here after the mark. A call of its that is
/// under way uses the position without its lock.
///
/// # Errors
/// `EBADF` if the descriptor is closed; `EPERM` without membarrier(2).
pub fn of_process(task: &Task, process: ProcessId, fd: Fd) -> Result<Option<(FileId, u64)>> {
    let Some(place) = FdTable::of(task.region, process).entry(fd) else { return Ok(None) };
    loop {
        let word = marks::named(place);
        if word & entry::OPEN == 0 {
            pin::clear(task, pin::slot::FIRST);
            let is_closed = word == entry::TRANSIT || word & entry::PARKED != 0;
            return if is_closed { Err(Errno::EBADF) } else { Ok(None) };
        }
        let id = FileId(word as u32);
        // Not yet as one that is being opened, which the burial of this lane would keep.
        pin::file(task, pin::slot::FIRST, id);
        let file = task.region.file(id);
        file::share(file);
        // PAIRS: the light barrier in `open_file::left`.
        if !heavy_barrier() {
            pin::clear(task, pin::slot::FIRST);
            return Err(Errno::EPERM);
        }
        // Unless the slot was freed before, and is now the file that was opened next.
        if marks::named(place) as u32 == id.0 && file::is_shared(file) {
            pin::file(task, pin::slot::OPEN, id);
            pin::clear(task, pin::slot::FIRST);
            return Ok(Some((id, if word & entry::DATA == 0 { entry::HOST } else { 0 })));
        }
    }
}

/// Releases the result of [`dup`].
pub fn abandon(task: &Task) {
    pin::clear(task, pin::slot::OPEN);
}
