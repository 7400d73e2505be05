//! fsync(2), fdatasync(2), syncfs(2), readahead(2), posix_fadvise(2): nothing lies below memory.

use lp_abi::linux::{POSIX_FADV_DONTNEED, POSIX_FADV_NOREUSE};
use lp_abi::{Errno, Result};
use lp_region::records::file_mode;
use lp_region::sync::Ordering::Relaxed;

use crate::target;
use crate::task::Task;

/// Nothing is left to be written.
///
/// # Errors
/// `EBADF`.
pub fn fsync(task: &Task, fd: i32) -> Result<()> {
    target::open(task, fd).map(drop)
}

/// Everything is in memory.
///
/// # Errors
/// `EBADF` when the file is not open for reading; `EINVAL` when it is not a regular file.
pub fn readahead(task: &Task, fd: i32) -> Result<()> {
    let held = target::open(task, fd)?;
    match held.file.mode.load(Relaxed) {
        mode if mode & file_mode::READ == 0 => Err(Errno::EBADF),
        mode if mode & file_mode::REGULAR == 0 => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// Advice that has no effect.
///
/// # Errors
/// `EBADF`; `EINVAL` for a length below zero or unknown advice.
pub fn fadvise(task: &Task, fd: i32, length: i64, advice: u32) -> Result<()> {
    target::open(task, fd)?;
    let known = advice <= POSIX_FADV_DONTNEED.max(POSIX_FADV_NOREUSE);
    if length < 0 || !known { Err(Errno::EINVAL) } else { Ok(()) }
}
