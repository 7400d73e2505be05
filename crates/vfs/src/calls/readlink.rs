//! readlink(2), readlinkat(2).

use lp_abi::linux::{S_IFLNK, S_IFMT};
use lp_abi::{Errno, Fd, PATH_MAX, Result, UserPtr, UserSlice};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{Spot, ucopy};

use crate::caller::task::{Outside, Place, Task};
use crate::inodes::inode;
use crate::names::link_target;
use crate::names::walk::{self, Follow};

/// Copies the target of a symbolic link, truncated to the size of the program's buffer, which is an `int`.
/// Returns the number of bytes copied. An empty path means `dirfd` itself.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for a size below 1 or anything but a symbolic link; `ENOENT` for an
/// empty path if `dirfd` is not a link; `EFAULT`.
pub fn readlinkat(task: &Task<'_>, dirfd: Fd, path: UserPtr, buffer: UserSlice) -> Result<Place<usize>> {
    let size = buffer.len() as i32;
    if size <= 0 {
        return Err(Errno::EINVAL);
    }
    let buffer = buffer.first(size as usize);
    let empty = walk::is_empty(path)?;
    for _ in 0..walk::TRIES {
        let found = if empty { itself(task, dirfd) } else { by_path(task, dirfd, path)? };
        let link = match found {
            Place::Inside(link) => link,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        let Spot { inode: link, mount } = link;
        let record = task.region.inode(link.id);
        let is_link = record.mode.load(Ordering::Relaxed) & S_IFMT == S_IFLNK;
        let copied = copy(task, record, buffer);
        if record.generation.load(Ordering::Acquire) != link.generation {
            continue;
        }
        if !is_link {
            return Err(if empty { Errno::ENOENT } else { Errno::EINVAL });
        }
        inode::accessed(task, record, 0, || mount);
        return copied.map(Place::Inside);
    }
    Err(Errno::ESTALE)
}

fn itself(task: &Task<'_>, dirfd: Fd) -> Place<Spot> {
    match task.fget_any(dirfd) {
        Ok(held) => Place::Inside(held.spot()),
        Err(_) => Place::Outside(Outside::AsGiven),
    }
}

fn by_path(task: &Task<'_>, dirfd: Fd, path: UserPtr) -> Result<Place<Spot>> {
    Ok(walk::inode(task, dirfd, path, Follow::No)?.map(|found| found.spot()))
}

fn copy(task: &Task<'_>, link: &Inode, to: UserSlice) -> Result<usize> {
    let length = link_target::target_length(link);
    // SAFETY: the buffer belongs to the task, and the walk is over.
    let text = unsafe { &mut (&mut *task.scratch.walk.get())[..PATH_MAX] };
    link_target::copy_target(task, link, &mut text[..length])?;
    let length = length.min(to.len());
    // SAFETY: `text` holds `length` bytes; the copy routine handles bad pointers.
    unsafe { ucopy::copy(to.start().as_ptr(), text.as_ptr(), length) }?;
    Ok(length)
}
