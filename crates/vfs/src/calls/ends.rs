//! The two ends of a call that moves content between descriptors: how each is open, and the errors that come
//! before anything is moved.

use lp_abi::linux::{
    __NR_fcntl, __NR_fstat, F_GETFL, O_ACCMODE, O_APPEND, O_PATH, S_IFDIR, S_IFMT, S_IFREG, iovec, stat,
};
use lp_abi::{Errno, Fd, Result, UserPtr, UserSlice};
use lp_region::records::file_mode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::ucopy;

use crate::caller::task::Task;
use crate::content::buffer::Vector;

/// How a descriptor, ours or the host's, is open: [`file_mode::READ`] and [`file_mode::WRITE`], and its
/// flags.
///
/// # Errors
/// `EBADF` if it is closed, or was opened with `O_PATH`.
pub fn opened(task: &Task, fd: Fd) -> Result<(u32, u32)> {
    if task.table.is_ours(fd) {
        let held = task.fget_no_path(fd)?;
        // Relaxed, both: one word each.
        return Ok((held.file.mode.load(Relaxed), held.file.flags.load(Relaxed)));
    }
    // SAFETY: the request takes no pointer.
    let flags = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_GETFL) }? as u32;
    if flags & O_PATH != 0 {
        return Err(Errno::EBADF);
    }
    let mode = match flags & O_ACCMODE {
        0 => file_mode::READ,
        1 => file_mode::WRITE,
        2 => file_mode::READ | file_mode::WRITE,
        _ => 0,
    };
    Ok((mode, flags))
}

/// Checks that a descriptor is open for `access`.
///
/// # Errors
/// `EBADF`.
pub(super) fn opened_for(task: &Task, fd: Fd, access: u32) -> Result<()> {
    if opened(task, fd)?.0 & access == 0 { Err(Errno::EBADF) } else { Ok(()) }
}

/// Checks that both descriptors are open, then that each is open for its role, with the offsets read between
/// the two, as in splice(2).
///
/// # Errors
/// `EBADF`; `EFAULT`.
pub(super) fn both(task: &Task, fd_in: Fd, fd_out: Fd, offsets: [UserPtr<i64>; 2]) -> Result<()> {
    let (from, to) = (opened(task, fd_in)?.0, opened(task, fd_out)?.0);
    read(offsets)?;
    let roles = from & file_mode::READ != 0 && to & file_mode::WRITE != 0;
    if roles { Ok(()) } else { Err(Errno::EBADF) }
}

/// Reads offsets that are given.
fn read(offsets: [UserPtr<i64>; 2]) -> Result<()> {
    for offset in offsets.into_iter().filter(|offset| !offset.is_null()) {
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::get(offset.as_ptr()) }?;
    }
    Ok(())
}

/// The error of tee(2) where one of the descriptors is ours, and so no pipe.
pub fn tee(task: &Task, fd_in: Fd, fd_out: Fd) -> Errno {
    both(task, fd_in, fd_out, [UserPtr::NULL; 2]).err().unwrap_or(Errno::EINVAL)
}

/// vmsplice(2) of a file of ours, which is no pipe: that is checked last.
///
/// # Errors
/// `EBADF`; `EINVAL` and `EFAULT` for the vector.
pub fn vmsplice(task: &Task, fd: Fd, vector: UserSlice<iovec>) -> Result<()> {
    opened_for(task, fd, file_mode::READ | file_mode::WRITE)?;
    if Vector::new(vector)?.is_empty() { Ok(()) } else { Err(Errno::EBADF) }
}

/// The error of copy_file_range(2) between a file of ours and one of the host's.
pub fn copy_between_systems(
    task: &Task,
    (fd_in, off_in): (Fd, UserPtr<i64>),
    (fd_out, off_out): (Fd, UserPtr<i64>),
    flags: u32,
) -> Errno {
    let checked = || -> Result<()> {
        let ((from, _), (to, out_flags)) = (opened(task, fd_in)?, opened(task, fd_out)?);
        read([off_in, off_out])?;
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let kinds = [kind(task, fd_in)?, kind(task, fd_out)?];
        if kinds.contains(&S_IFDIR) {
            return Err(Errno::EISDIR);
        }
        if kinds != [S_IFREG; 2] {
            return Err(Errno::EINVAL);
        }
        let roles = from & file_mode::READ != 0 && to & file_mode::WRITE != 0;
        if roles && out_flags & O_APPEND == 0 { Err(Errno::EXDEV) } else { Err(Errno::EBADF) }
    };
    checked().err().unwrap_or(Errno::EXDEV)
}

/// The type of an open file.
fn kind(task: &Task, fd: Fd) -> Result<u32> {
    if task.table.is_ours(fd) {
        // Relaxed: the type does not change.
        return Ok(task.fget_no_path(fd)?.inode.mode.load(Relaxed) & S_IFMT);
    }
    host_type(fd)
}

/// The type of a host file.
pub(super) fn host_type(fd: Fd) -> Result<u32> {
    host_attributes(fd).map(|attributes| attributes.st_mode & S_IFMT)
}

/// The attributes of a host file.
pub(super) fn host_attributes(fd: Fd) -> Result<stat> {
    let mut value = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: the kernel writes a stat; zeros are a valid one too.
    unsafe {
        lp_abi::syscall!(__NR_fstat, fd, value.as_mut_ptr())?;
        Ok(value.assume_init())
    }
}
