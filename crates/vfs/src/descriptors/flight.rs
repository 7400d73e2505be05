//! Open files in transit over a socket (`SCM_RIGHTS`): found, not counted.
//!
//! Each process of a run has inherited a descriptor of one empty memfd, the run's *flights*. What is sent
//! instead of an open file is a token: an open file description of that memfd, with its own lock
//! (F_OFD_SETLK) on the bytes of the open file. The kernel drops the lock with the last reference to the
//! description, wherever that was: in a socket's queue, in a message that nobody received, or with a process
//! that was killed. An open file is therefore in flight if its bytes are locked.
//!
//! `OpenFile::in_flight` records which runs have ever sent the file. It is set after the lock is taken and
//! stays until the file is freed, so other files need no check. Another run's flights cannot be checked: what
//! that run has sent stays alive while the run does.

use lp_abi::linux::{__NR_fcntl, F_OFD_GETLK, F_OFD_SETLK, F_UNLCK, F_WRLCK, flock};
use lp_abi::{Errno, Fd, Result};
use lp_region::layout::{FILES, RUNS};
use lp_region::sync::Ordering;
use lp_region::{FileId, Region, RunId};

use crate::caller::task::Task;

/// Bytes for each open file, and so the maximum number of its tokens in transit.
const BYTES: i64 = 1 << 32;

fn lock_of(id: FileId, at: i64, length: i64) -> flock {
    let start = i64::from(id.0) % FILES as i64 * BYTES + at;
    flock { l_type: F_WRLCK as i16, l_whence: 0, l_start: start, l_len: length, l_pid: 0 }
}

/// The run's flights.
pub fn descriptor(task: &Task) -> Option<Fd> {
    // Relaxed: immutable.
    task.run.flights.load(Ordering::Relaxed).checked_sub(1).map(|fd| Fd::new(fd as i32))
}

/// A run's bit in [`lp_region::records::OpenFile::in_flight`], shared with few other runs.
fn bit(run: RunId) -> u32 {
    1 << (run.0 % u32::BITS)
}

/// Marks the open file as in flight for the life of the open file description behind `token`, one of the
/// run's flights. The caller must hold the open file.
///
/// # Errors
/// Those of fcntl(2).
pub fn launch(task: &Task, id: FileId, token: Fd) -> Result<()> {
    let mut at = i64::from(task.lane_id.0);
    loop {
        let lock = lock_of(id, at, 1);
        // SAFETY: the kernel only reads the structure.
        match unsafe { lp_abi::syscall!(__NR_fcntl, token, F_OFD_SETLK, &raw const lock) } {
            Err(Errno::EAGAIN) => at = (at + 1) % BYTES, // Another token of the same file has this byte.
            done => break done.map(drop)?,
        }
    }
    let run = RunId(task.process.run.load(Ordering::Relaxed)); // Relaxed: immutable while claimed.
    // PAIRS: the acquire in `sent`, by a sweep that has seen the sender's pin or entry gone.
    task.region.header().flown.fetch_max(id.0 + 1, Ordering::Release);
    // PAIRS: the acquire in `is_in_flight`: a lane that sees the bit finds the lock.
    task.region.file(id).in_flight.fetch_or(bit(run), Ordering::Release);
    Ok(())
}

/// The open files that were ever sent; usually none.
pub(crate) fn sent(region: Region<'_>) -> impl Iterator<Item = FileId> + '_ {
    // PAIRS: the release in `launch`.
    let behind = region.header().flown.load(Ordering::Acquire).min(FILES as u32);
    (1..behind).map(FileId).filter(move |id| region.file(*id).in_flight.load(Ordering::Relaxed) != 0)
}

/// Whether an open file that no table names may still be received. A receiver stores the file in a table and
/// increments `Header::moves` before it closes the token. If this returns false, the caller must therefore
/// check `moves` again.
pub(crate) fn is_in_flight(task: &Task, id: FileId) -> bool {
    // PAIRS: the release in `launch`.
    let senders = task.region.file(id).in_flight.load(Ordering::Acquire);
    if senders == 0 {
        return false;
    }
    let own = RunId(task.process.run.load(Ordering::Relaxed)); // Relaxed: immutable while claimed.
    (1..RUNS as u32).map(RunId).filter(|run| senders & bit(*run) != 0).any(|run| match run == own {
        true => is_locked(task, id),
        false => task.region.run_is_held(run),
    })
}

fn is_locked(task: &Task, id: FileId) -> bool {
    let Some(fd) = descriptor(task) else { return false };
    let mut lock = lock_of(id, 0, BYTES);
    // SAFETY: the kernel writes only the structure.
    let asked = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_OFD_GETLK, &raw mut lock) };
    asked.is_err() || lock.l_type != F_UNLCK as i16
}
