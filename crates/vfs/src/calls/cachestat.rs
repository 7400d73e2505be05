//! cachestat(2).

use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr};
use lp_region::records::file_mode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::ucopy;

use crate::caller::task::Task;
use crate::content::map;
use crate::rights::{credentials, permission};

/// Writes how much of a range, an offset and a length, is in memory: pages in the cache, dirty, being written
/// back, evicted, recently evicted. All pages of a file are in memory and, as on tmpfs, none counts as dirty.
///
/// # Errors
/// `EBADF`; `EFAULT`; `EPERM` unless the caller may write to the file or owns it; `EINVAL` for a flag.
pub fn cachestat(
    task: &Task,
    fd: Fd,
    range: UserPtr<[u64; 2]>,
    to: UserPtr<[u64; 5]>,
    flags: u32,
) -> Result<()> {
    let held = task.fget_no_path(fd)?;
    // SAFETY: the copy routine handles bad pointers.
    let [offset, length] = unsafe { ucopy::get(range.as_ptr()) }?;
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    let may_write = mode & file_mode::WRITE != 0
        || credentials::owns(task, held.inode)
        || permission::check(task, held.inode, permission::WRITE).is_ok();
    if !may_write {
        return Err(Errno::EPERM);
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let page = PAGE_SIZE as u64;
    let end = match length {
        0 => map::END,
        _ => offset.wrapping_add(length - 1) / page + 1,
    };
    // A directory's entries are not in the cache.
    let pages = match mode & file_mode::REGULAR {
        0 => 0,
        _ => held.inode.data_seq.snapshot(|| map::held(task.region, held.inode, offset / page, end)),
    };
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(to.as_ptr(), &[pages, 0, 0, 0, 0]) }
}
