//! flock(2).

use lp_abi::linux::{LOCK_EX, LOCK_MAND, LOCK_NB, LOCK_SH, LOCK_UN};
use lp_abi::{Errno, Fd, Result};
use lp_region::records::file_mode;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::locks::file_lock::{self, LockWait};
use crate::locks::lock::{ByteRange, Lock, LockType, family};

/// Locks or unlocks an open file's inode. The door must restart on `EINTR`.
///
/// # Errors
/// `EBADF`, also for `O_PATH` and for access mode 3; `EINVAL`; `EAGAIN` (`EWOULDBLOCK`) with `LOCK_NB`;
/// `EINTR`; `ENOLCK`.
pub fn flock(task: &Task, fd: Fd, operation: u32) -> Result<()> {
    // The kernel ignores these and logs a message.
    if operation & LOCK_MAND != 0 {
        return Ok(());
    }
    let kind = match operation & !LOCK_NB {
        LOCK_SH => Some(LockType::Shared),
        LOCK_EX => Some(LockType::Exclusive),
        LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    let held = task.fget(fd)?;
    let mode = held.file.mode.load(Ordering::Relaxed);
    let usable = mode & (file_mode::READ | file_mode::WRITE) != 0;
    if mode & file_mode::PATH != 0 || kind.is_some() && !usable {
        return Err(Errno::EBADF);
    }
    let owner = file_lock::file_owner(task, held.id, family::FLOCK);
    let id = held.inode_id();
    let Some(kind) = kind else {
        return file_lock::release(task, id, owner, ByteRange::FLOCK);
    };
    if file_lock::holds(task, id, owner, kind) {
        return Ok(());
    }
    // A conversion releases the old lock first and is not atomic, as flock(2) warns.
    file_lock::release(task, id, owner, ByteRange::FLOCK)?;
    held.file.locked.store(1, Ordering::Release);
    let pid = task.process.pid.load(Ordering::Relaxed);
    let wait = if operation & LOCK_NB != 0 { LockWait::No } else { LockWait::Yes };
    file_lock::acquire(task, id, &Lock { owner, range: ByteRange::FLOCK, kind, pid, through: held.id }, wait)
}
