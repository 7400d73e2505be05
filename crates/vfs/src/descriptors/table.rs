//! Changes to a process's descriptor table.
//!
//! They need the caller's lane, for the table's lock and for the pin of what they remove, so they are
//! functions of the task. What concerns the table alone is in [`FdTable`].

use lp_abi::{Errno, Fd, Result};
use lp_region::layout::{FDS, FDS_APART};
use lp_region::order::{self, LockGuard, Rank};
use lp_region::process::Process;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, ProcessId, Region};

pub(crate) use crate::caller::fd_table::Whose;
pub use crate::caller::fd_table::{FdTable, closing, entry};
use crate::caller::task::Task;
use crate::descriptors::file;
use crate::lane::pin;

/// Stores `new` in an entry that [`reach`] covers and returns the previous value. The change is one store, so
/// other threads always see the number open. If threads share the table, the caller must hold its lock. It
/// must call [`let_go`](crate::life::open_file::let_go) once it does not.
#[inline]
pub fn replace(task: &Task, place: &AtomicU64, new: u64) -> u64 {
    let old = place.load(Ordering::Relaxed); // Relaxed: guarded by the lock.
    match old & entry::OPEN {
        0 => place.store(new, Ordering::Release),
        _ => file::leave(task, place, FileId(old as u32), new),
    }
    old
}

/// The entry of `fd`, which the table covers from here on. Call it before storing the entry, under the same
/// lock.
///
/// # Errors
/// `EBADF` for a number that no table holds; `ENOSPC` if the region's file has no space for a larger table.
#[inline(always)]
pub fn reach<'r>(task: &Task<'r>, fd: Fd) -> Result<&'r AtomicU64> {
    let number = fd.raw() as u32;
    // Relaxed: guarded by the table's lock.
    if number < task.process.fd_limit.load(Ordering::Relaxed) && number < FDS_APART as u32 {
        Ok(task.table.low(number))
    } else {
        reach_slow(task, fd)
    }
}

#[cold]
fn reach_slow<'r>(task: &Task<'r>, fd: Fd) -> Result<&'r AtomicU64> {
    // Relaxed: guarded by the lock.
    if fd.raw() as u32 >= task.process.fd_limit.load(Ordering::Relaxed) {
        grow(task, fd)?;
    }
    Ok(task.table.place(fd.raw() as u32))
}

fn grow(task: &Task, fd: Fd) -> Result<()> {
    if fd.raw() as u32 >= FDS as u32 {
        return Err(Errno::EBADF);
    }
    let limit = &task.process.fd_limit;
    // Relaxed: guarded by the lock.
    task.region.back_table(task.process_id, limit.load(Ordering::Relaxed) as usize, fd.index() + 1)?;
    limit.store(fd.index() as u32 + 1, Ordering::Release);
    Ok(())
}

/// A number that changes with each copy of a reference that a scan of all tables may miss at both ends.
/// Copies within a table that one thread uses are not included, because [`FdTable::look_through`] detects
/// those.
pub(crate) fn moves(region: Region) -> u64 {
    // PAIRS: the increments after a copy, in `dup::received` and `fork`.
    let between = region.header().moves.load(Ordering::Acquire);
    let within = |process: ProcessId| {
        let record = region.process(process);
        // PAIRS: the release in `boot::thread_gone`. For a thread that came and went meanwhile, its going is
        // counted. One more than the copies, so that the existence of threads counts.
        let copies = match record.threads.load(Ordering::Acquire) {
            0 => 0,
            _ => u64::from(record.moves.load(Ordering::Acquire)) + 1, // PAIRS: the release in `moved`.
        };
        copies + u64::from(record.threads_gone.load(Ordering::Acquire))
    };
    region.processes().fold(between, |sum, process| sum.wrapping_add(within(process)))
}

/// Undoes a [`replace`] that returned `old`. The caller still holds the lock.
#[cold]
pub fn restore(task: &Task, place: &AtomicU64, old: u64) {
    place.store(old, Ordering::Release);
    task.table.moved();
    pin::clear(task, pin::slot::CLOSE);
}

/// Sets or clears bits of the entry of `fd`.
///
/// # Errors
/// `EBADF` if it is not ours.
pub fn change(task: &Task, fd: Fd, set: u64, clear: u64) -> Result<()> {
    let Some(place) = task.table.covered(fd) else { return Err(Errno::EBADF) };
    let _locked = lock(task);
    let old = place.load(Ordering::Relaxed);
    let ours = old & entry::OPEN != 0;
    if ours {
        place.store(old & !clear | set, Ordering::Release);
    }
    if ours { Ok(()) } else { Err(Errno::EBADF) }
}

/// The table's lock, held until this is dropped, if threads share the table.
#[must_use = "the lock is given back once this is dropped"]
pub(crate) struct TableLock<'r> {
    _held: Option<LockGuard<'r>>,
}

impl TableLock<'_> {
    /// Leaves the lock held, for another function of this thread to unlock.
    pub(crate) fn leave(self) {
        core::mem::forget(self);
    }
}

/// Takes the table's lock if threads share it.
#[inline]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock<'r>(task: &Task<'r>) -> TableLock<'r> {
    // Relaxed: only this thread can have created the second thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 {
        return TableLock { _held: None };
    }
    let process: &'r Process = task.process;
    let of = order::of(&task.lane.holding);
    order::wait(of, order::what(Rank::Table, &process.table_lock));
    process.table_lock.lock(task.lane_id, task);
    TableLock { _held: Some(order::keep(of, &process.table_lock)) }
}
