//! Changes to a process's descriptor table.
//!
//! They need the caller's lane, for its marks and for the pin of what they remove, so they are functions of
//! the task. What concerns the table alone is in [`FdTable`].

use lp_abi::{Errno, Fd, Result};
use lp_region::layout::{FDS, FDS_APART};
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, ProcessId, Region};

pub(crate) use crate::caller::fd_table::Whose;
pub use crate::caller::fd_table::{FdTable, closing, entry};
use crate::caller::task::Task;
use crate::descriptors::file;
use crate::descriptors::table_lock::Beside;
use crate::lane::pin;

/// Stores `new` in an entry that [`reach`] covers and returns the previous value. The change is one store, so
/// other threads always see the number open. The caller must have the table alone ([`Alone`]). It must call
/// [`let_go`](crate::life::open_file::let_go) once it does not.
///
/// [`Alone`]: crate::descriptors::table_lock::Alone
#[inline]
pub fn replace(task: &Task, place: &AtomicU64, new: u64) -> u64 {
    let old = place.load(Ordering::Relaxed); // Relaxed: nobody else changes it.
    match old & entry::OPEN {
        0 => place.store(new, Ordering::Release),
        _ => file::leave_alone(task, place, FileId(old as u32), new),
    }
    old
}

/// The entry of `fd`, which the table covers from here on. Call it before storing the entry, under the same
/// [`Beside`] or [`Alone`](crate::descriptors::table_lock::Alone).
///
/// # Errors
/// `EBADF` for a number that no table holds; `ENOSPC` if the region's file has no space for a larger table.
#[inline(always)]
pub fn reach<'r>(task: &Task<'r>, fd: Fd) -> Result<&'r AtomicU64> {
    let number = fd.raw() as u32;
    // Relaxed: it only grows.
    if number < task.process.fd_limit.load(Ordering::Relaxed) && number < FDS_APART as u32 {
        Ok(task.table.low(number))
    } else {
        reach_slow(task, fd)
    }
}

#[cold]
fn reach_slow<'r>(task: &Task<'r>, fd: Fd) -> Result<&'r AtomicU64> {
    // Relaxed: it only grows.
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
    // Relaxed: space that another thread reserves meanwhile is reserved twice.
    task.region.back_table(task.process_id, limit.load(Ordering::Relaxed) as usize, fd.index() + 1)?;
    limit.fetch_max(fd.index() as u32 + 1, Ordering::Release);
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
    // Mixed, not added: what one process gains must not make up for what another, which ends, takes with it.
    let mix = |all: u64, one: u64| all.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_add(one);
    region.processes().fold(between, |all, process| mix(all, within(process)))
}

/// Undoes a [`replace`] that returned `old`. The caller still has the table alone.
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
    let beside = Beside::take(task);
    loop {
        let old = place.load(Ordering::Relaxed); // Relaxed: the exchange looks again.
        if old & entry::OPEN == 0 {
            return Err(Errno::EBADF);
        }
        if beside.exchange(place, old, old & !clear | set) {
            return Ok(());
        }
    }
}
