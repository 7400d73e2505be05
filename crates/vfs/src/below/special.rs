//! FIFOs, sockets and devices of the layer: the run's processes and the host's meet at the host's own.

use lp_abi::{Errno, Fd, Result};
use lp_region::InodeId;

use crate::below::{host, list, may_call, spot};
use crate::caller::task::Task;

/// The path of what a special file stands for on the host, NUL-terminated, if it came from there. It is valid
/// until the task's next walk.
///
/// # Errors
/// `EIO` if another is there now, or nothing; `ENAMETOOLONG`; those of statx(2).
#[cold]
pub fn host_path<'t>(task: &'t Task<'_>, id: InodeId) -> Result<Option<&'t [u8]>> {
    let Some(at) = spot(task.region.inode(id)) else { return Ok(None) };
    let seen = list::record(task.region, at)?;
    if seen.is_gone() {
        return Err(Errno::EIO);
    }
    // SAFETY: the buffer belongs to the task, and any path left in it has been used.
    let room = unsafe { &mut *task.scratch.outside.get() };
    let start = host::path(task.region, at, None, room)?;
    let path = &room[start..];
    if may_call().is_ok() {
        let (now, _) = host::found(host::attributes(Fd::CWD, path.as_ptr()))?;
        if !host::is_same(&seen, &now) {
            return Err(Errno::EIO);
        }
    }
    Ok(Some(path))
}
