//! fcntl(2): the commands on descriptors and open files. [`crate::locks::file_lock`] has locks,
//! [`crate::calls::dup`] has `F_DUPFD`.

use lp_abi::linux::{FD_CLOEXEC, O_APPEND, O_DIRECT, O_NDELAY, O_NOATIME, O_NONBLOCK, S_IFDIR, S_IFMT};
use lp_abi::{Errno, Fd, Result};
use lp_region::process::caps;
use lp_region::records::{file_mode, inode_flags};
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;
use crate::descriptors::table::{self, entry};
use crate::inodes::inode;
use crate::rights::credentials;

/// Flags that `F_SETFL` changes (`SETFL_MASK`).
const SETTABLE: u32 = O_APPEND | O_NONBLOCK | O_NDELAY | O_DIRECT | O_NOATIME;

/// `RWH_WRITE_LIFE_EXTREME`.
const LONGEST_LIFE: u64 = 5;

/// `F_GETFD`: [`FD_CLOEXEC`] or 0.
///
/// # Errors
/// `EBADF`.
pub fn get_fd(task: &Task, fd: Fd) -> Result<u32> {
    match task.table.load(fd) {
        word if word & entry::OPEN == 0 => Err(Errno::EBADF),
        word if word & entry::CLOEXEC != 0 => Ok(FD_CLOEXEC),
        _ => Ok(0),
    }
}

/// `F_SETFD`.
///
/// # Errors
/// `EBADF`.
pub fn set_fd(task: &Task, fd: Fd, flags: u32) -> Result<()> {
    let set = if flags & FD_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    table::change(task, fd, set, entry::CLOEXEC & !set)
}

/// `F_GETFL`: access mode and status flags.
///
/// # Errors
/// `EBADF`.
pub fn get_fl(task: &Task, fd: Fd) -> Result<u32> {
    let held = task.fget_any(fd)?;
    Ok(held.file.flags.load(Ordering::Relaxed)) // Relaxed: one word.
}

/// `F_SETFL`. The door must also tell the kernel about a descriptor whose data is the kernel's.
///
/// # Errors
/// `EBADF`, also for `O_PATH`; `EPERM` for removing `O_APPEND` from an append-only file and for `O_NOATIME`
/// on another user's; `EINVAL` for `O_DIRECT` on a directory.
pub fn set_fl(task: &Task, fd: Fd, flags: u32) -> Result<()> {
    let held = task.fget_any(fd)?;
    if held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    let old = held.file.flags.load(Ordering::Relaxed);
    // The kernel's setfl: IS_APPEND.
    if (flags ^ old) & O_APPEND != 0 && held.inode.flags.load(Ordering::Relaxed) & inode_flags::APPEND != 0 {
        return Err(Errno::EPERM);
    }
    if flags & O_NOATIME != 0 && old & O_NOATIME == 0 && !credentials::owns(task, held.inode) {
        return Err(Errno::EPERM);
    }
    // The kernel's setfl: FMODE_CAN_ODIRECT, which directories lack.
    if flags & O_DIRECT != 0 && held.inode.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR {
        return Err(Errno::EINVAL);
    }
    // Regular files and directories have no fasync method, so FASYNC stays as it is.
    held.file.flags.store(old & !SETTABLE | flags & SETTABLE, Ordering::Relaxed);
    Ok(())
}

/// `F_GET_RW_HINT`: how long what is written is expected to live (`RWH_WRITE_LIFE_*`).
///
/// # Errors
/// `EBADF`.
pub fn write_hint(task: &Task, fd: Fd) -> Result<u64> {
    let held = task.fget_any(fd)?;
    let flags = held.inode.flags.load(Ordering::Relaxed); // Relaxed: one word.
    Ok(u64::from((flags & inode_flags::WRITE_HINT) >> inode_flags::WRITE_HINT.trailing_zeros()))
}

/// `F_SET_RW_HINT`, which keeps the value of `wanted` and changes nothing else in memory.
///
/// # Errors
/// `EBADF`; `EPERM` for another user's file; those of `wanted`; `EINVAL` for an unknown value.
pub fn set_write_hint(task: &Task, fd: Fd, wanted: impl FnOnce() -> Result<u64>) -> Result<()> {
    let held = task.fget_any(fd)?;
    if !credentials::owns(task, held.inode) {
        return Err(Errno::EPERM);
    }
    let hint = wanted()?;
    if hint > LONGEST_LIFE {
        return Err(Errno::EINVAL);
    }
    let _locked = inode::lock(task, held.inode_id());
    let flags = held.inode.flags.load(Ordering::Relaxed) & !inode_flags::WRITE_HINT; // Relaxed: under the lock.
    let hint = (hint as u32) << inode_flags::WRITE_HINT.trailing_zeros();
    held.inode.flags.store(flags | hint, Ordering::Relaxed);
    Ok(())
}

/// Whether the caller may have a lease on an open file (`vfs_setlease`).
///
/// # Errors
/// `EACCES` for another user's file without `CAP_LEASE`; `EINVAL` for anything but a regular file.
pub fn may_lease(task: &Task, held: &HeldFile) -> Result<()> {
    // Relaxed, both: one word each.
    let owner = held.inode.uid.load(Ordering::Relaxed);
    if owner != task.credentials.get().fsuid.load(Ordering::Relaxed)
        && !credentials::capable_initially(task, caps::LEASE)
    {
        return Err(Errno::EACCES);
    }
    // Relaxed: immutable.
    let is_regular = held.file.mode.load(Ordering::Relaxed) & file_mode::REGULAR != 0;
    if is_regular { Ok(()) } else { Err(Errno::EINVAL) }
}
