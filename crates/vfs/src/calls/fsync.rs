//! fsync(2), fdatasync(2), syncfs(2), msync(2), readahead(2), posix_fadvise(2).
//!
//! Nothing lies below a region in memory. One in a file is written out as a whole: docs/durability.md says what that is
//! good for. The call that the program made is made on the region, so that one which the program may not make is not made.

use lp_abi::linux::{
    __NR_fdatasync, __NR_fsync, __NR_msync, __NR_syncfs, MS_SYNC, POSIX_FADV_DONTNEED, POSIX_FADV_NOREUSE,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::Region;
use lp_region::records::file_mode;
use lp_region::sync::Ordering::Relaxed;

use crate::caller::task::Task;
use crate::descriptors::table;

/// The calls on a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// fsync(2).
    File,
    /// fdatasync(2).
    Data,
    /// syncfs(2).
    FileSystem,
}

/// Writes out a region in a file; returns once the device has it.
///
/// # Errors
/// `EBADF`; those of the host's file system.
pub fn fsync(task: &Task, fd: Fd, call: Sync) -> Result<()> {
    table::fget_no_path(task, fd)?;
    if !is_in_file(task.region) {
        return Ok(());
    }
    let region = task.region.fd();
    // SAFETY: changes no byte.
    unsafe {
        match call {
            Sync::File => lp_abi::syscall!(__NR_fsync, region),
            Sync::Data => lp_abi::syscall!(__NR_fdatasync, region),
            Sync::FileSystem => lp_abi::syscall!(__NR_syncfs, region),
        }
    }
    .map(drop)
}

/// The same after msync(2) of a mapping: what is needed to find the mapped pages again lies elsewhere in the region.
///
/// # Errors
/// Those of the host's file system.
pub fn msync(task: &Task) -> Result<()> {
    let region = task.region;
    if !is_in_file(region) {
        return Ok(());
    }
    // SAFETY: changes no byte.
    unsafe { lp_abi::syscall!(__NR_msync, region.base(), region.length(), MS_SYNC) }.map(drop)
}

fn is_in_file(region: Region) -> bool {
    region.header().in_file.load(Relaxed) != 0 // Relaxed: immutable while the region is in use.
}

/// sync_file_range(2) writes no attributes, and so promises nothing.
///
/// # Errors
/// `EBADF`.
pub fn sync_file_range(task: &Task, fd: Fd) -> Result<()> {
    table::fget_no_path(task, fd).map(drop)
}

/// Everything is in memory.
///
/// # Errors
/// `EBADF` when the file is not open for reading; `EINVAL` when it is not a regular file.
pub fn readahead(task: &Task, fd: Fd) -> Result<()> {
    let held = table::fget_no_path(task, fd)?;
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
pub fn fadvise(task: &Task, fd: Fd, length: i64, advice: u32) -> Result<()> {
    table::fget_no_path(task, fd)?;
    let known = advice <= POSIX_FADV_DONTNEED.max(POSIX_FADV_NOREUSE);
    if length < 0 || !known { Err(Errno::EINVAL) } else { Ok(()) }
}
