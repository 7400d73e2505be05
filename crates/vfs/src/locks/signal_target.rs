//! Who is signalled about an open file, and how: `F_SETOWN`, `F_SETOWN_EX` and `F_SETSIG` of fcntl(2).
//!
//! An open file that has either keeps a lock record of a family of its own on bytes that no lock reaches, so
//! it lives, is shared and ends as a lock of the file does. The byte is the value.

use lp_abi::Result;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;
use crate::locks::file_lock::{self, LockWait};
use crate::locks::lock::{ByteRange, Lock, LockType, family};

/// The signal and its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Target {
    /// `F_OWNER_TID`, `F_OWNER_PID` or `F_OWNER_PGRP`.
    pub kind: u32,
    /// Thread, process or group; 0 for none.
    pub id: u32,
    /// Signal, 0 for `SIGIO`.
    pub signal: u32,
}

/// Signals per kind of target.
const SIGNALS: u64 = 128;
/// The bytes that stand for all values.
const BYTES: ByteRange =
    ByteRange { start: ByteRange::FLOCK.end + 1, end: ByteRange::FLOCK.end + 4 * SIGNALS };

/// The target of an open file.
pub fn get(task: &Task, held: &HeldFile) -> Target {
    // PAIRS: the release store in `set`.
    if held.file.locked.load(Ordering::Acquire) == 0 {
        return Target::default();
    }
    let owner = file_lock::file_owner(task, held.id, family::SIGNAL);
    let found = file_lock::own(task, held.inode_id(), owner, BYTES);
    found.map_or_else(Target::default, |lock| {
        let value = lock.range.start - BYTES.start;
        Target { kind: (value / SIGNALS) as u32, id: lock.pid, signal: (value % SIGNALS) as u32 }
    })
}

/// Sets the target of an open file. `signal` is at most 64, `kind` one of the three.
///
/// # Errors
/// `ENOLCK` without records.
pub fn set(task: &Task, held: &HeldFile, target: Target) -> Result<()> {
    let owner = file_lock::file_owner(task, held.id, family::SIGNAL);
    let id = held.inode_id();
    file_lock::release(task, id, owner, BYTES)?;
    held.file.locked.store(1, Ordering::Release);
    let byte = BYTES.start + u64::from(target.kind & 3) * SIGNALS + u64::from(target.signal) % SIGNALS;
    let range = ByteRange { start: byte, end: byte };
    let lock = Lock { owner, range, kind: LockType::Shared, pid: target.id, through: held.id };
    file_lock::acquire(task, id, &lock, LockWait::No)
}
