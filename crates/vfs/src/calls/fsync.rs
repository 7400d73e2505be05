//! fsync(2), fdatasync(2), syncfs(2), msync(2), readahead(2), posix_fadvise(2).
//!
//! Nothing lies below a region in memory. A region in a file is written out as a whole; docs/durability.md
//! says what that guarantees. The program's own call is made on the region, so no call is made that the
//! program may not make.

use lp_abi::linux::{
    __NR_fdatasync, __NR_fsync, __NR_msync, __NR_syncfs, MS_SYNC, POSIX_FADV_DONTNEED, POSIX_FADV_NOREUSE,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::Region;
use lp_region::records::file_mode;
use lp_region::sync::Ordering::Relaxed;

use crate::caller::task::Task;

/// The calls that take a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// fsync(2).
    File,
    /// fdatasync(2).
    Data,
    /// syncfs(2).
    FileSystem,
}

/// Writes out a region in a file. Returns once the device has it.
///
/// # Errors
/// `EBADF`; those of the host's file system.
pub fn fsync(task: &Task, fd: Fd, call: Sync) -> Result<()> {
    task.fget_no_path(fd)?;
    if !is_in_file(task.region) {
        return Ok(());
    }
    let region = task.region.fd();
    // SAFETY: the sync calls change no byte and take no pointers.
    unsafe {
        match call {
            Sync::File => lp_abi::syscall!(__NR_fsync, region),
            Sync::Data => lp_abi::syscall!(__NR_fdatasync, region),
            Sync::FileSystem => lp_abi::syscall!(__NR_syncfs, region),
        }
    }
    .map(drop)
}

/// Writes out the region after msync(2) of a mapping, because what is needed to find the mapped pages again
/// lies elsewhere in the region.
///
/// # Errors
/// Those of the host's file system.
pub fn msync(task: &Task) -> Result<()> {
    let region = task.region;
    if !is_in_file(region) {
        return Ok(());
    }
    // SAFETY: msync(2) changes no byte.
    unsafe { lp_abi::syscall!(__NR_msync, region.base(), region.length(), MS_SYNC) }.map(drop)
}

fn is_in_file(region: Region) -> bool {
    region.header().in_file.load(Relaxed) != 0 // Relaxed: immutable while the region is in use.
}

/// sync_file_range(2). It writes no attributes and guarantees nothing, so this only checks the descriptor.
///
/// # Errors
/// `EBADF`.
pub fn sync_file_range(task: &Task, fd: Fd) -> Result<()> {
    task.fget_no_path(fd).map(drop)
}

/// readahead(2). Everything is in memory, so this only checks the descriptor.
///
/// # Errors
/// `EBADF` if the file is not open for reading; `EINVAL` if it is not a regular file, or for a negative
/// count.
pub fn readahead(task: &Task, fd: Fd, count: usize) -> Result<()> {
    let held = task.fget_no_path(fd)?;
    match held.file.mode.load(Relaxed) {
        mode if mode & file_mode::READ == 0 => Err(Errno::EBADF),
        mode if mode & file_mode::REGULAR == 0 || (count as isize) < 0 => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// posix_fadvise(2). The advice has no effect.
///
/// # Errors
/// `EBADF`; `EINVAL` for a negative length or unknown advice.
pub fn fadvise(task: &Task, fd: Fd, length: i64, advice: u32) -> Result<()> {
    task.fget_no_path(fd)?;
    let known = advice <= POSIX_FADV_DONTNEED.max(POSIX_FADV_NOREUSE);
    if length < 0 || !known { Err(Errno::EINVAL) } else { Ok(()) }
}
