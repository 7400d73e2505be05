//! readlink(2), readlinkat(2).

use lp_abi::linux::{S_IFLNK, S_IFMT};
use lp_abi::{Errno, PATH_MAX, Result};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{Spot, ucopy};

use crate::caller::task::{Outside, Place, Task};
use crate::descriptors::table;
use crate::inodes::inode;
use crate::names::link_target;
use crate::names::walk::{self, Follow};

/// Copies the target of a symbolic link, truncated to `size` bytes, to the program's memory. Returns the
/// number of bytes copied. An empty path means `dirfd` itself.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for a size below 1 or anything but a symbolic link; `ENOENT` for an
/// empty path if `dirfd` is not a link; `EFAULT`.
pub fn readlinkat(
    task: &Task<'_>,
    dirfd: i32,
    path: *const u8,
    buffer: *mut u8,
    size: i32,
) -> Result<Place<usize>> {
    if size <= 0 {
        return Err(Errno::EINVAL);
    }
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
        let copied = copy(task, record, buffer, size as usize);
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

fn itself(task: &Task<'_>, dirfd: i32) -> Place<Spot> {
    match table::fget_any(task, dirfd) {
        Ok(held) => Place::Inside(held.spot()),
        Err(_) => Place::Outside(Outside::AsGiven),
    }
}

fn by_path(task: &Task<'_>, dirfd: i32, path: *const u8) -> Result<Place<Spot>> {
    Ok(walk::inode(task, dirfd, path, Follow::No)?.map(|found| found.spot()))
}

fn copy(task: &Task<'_>, link: &Inode, to: *mut u8, size: usize) -> Result<usize> {
    let length = link_target::target_length(link);
    // SAFETY: the buffer belongs to the task, and the walk is over.
    let text = unsafe { &mut (&mut *task.scratch.walk.get())[..PATH_MAX] };
    link_target::copy_target(task, link, &mut text[..length])?;
    let length = length.min(size);
    // SAFETY: `text` holds `length` bytes; the copy routine handles bad pointers.
    unsafe { ucopy::copy(to, text.as_ptr(), length) }?;
    Ok(length)
}
