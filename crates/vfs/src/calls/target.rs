//! What a call works on: an inode found by path or descriptor and kept alive until the call is done.

use lp_abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, MountId, Spot, ucopy};

use crate::caller::task::{Outside, Place, Task};
use crate::descriptors::table;
use crate::lane::pin;
use crate::names::walk::{self, Follow};

/// Times that a path is resolved again because what it named had gone: each means that another process made progress.
const TRIES: u32 = 1000;

/// Whether a path that may be empty is: the kernel takes a null pointer for one (since 6.11).
///
/// # Errors
/// `EFAULT`.
#[inline]
pub(crate) fn is_empty(path: UserPtr) -> Result<bool> {
    // SAFETY: the program's memory.
    Ok(path.is_null() || unsafe { ucopy::get(path.as_ptr()) }? == 0)
}

/// What `AT_SYMLINK_NOFOLLOW` in `flags` means for a walk.
#[inline]
pub(crate) fn follow(flags: u32) -> Follow {
    if flags & AT_SYMLINK_NOFOLLOW != 0 { Follow::No } else { Follow::Link }
}

/// Calls `work` on what `path` names from `dirfd`, and the mount it is in, by `AT_SYMLINK_NOFOLLOW` and
/// `AT_EMPTY_PATH` in `flags`.
///
/// # Errors
/// Those of path_resolution(7) and of `work`.
pub fn at<T>(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    flags: u32,
    mut work: impl FnMut(InodeId, &Inode, MountId) -> Result<T>,
) -> Result<Place<T>> {
    if flags & AT_EMPTY_PATH != 0 && is_empty(path)? {
        return descriptor(task, dirfd, work);
    }
    for _ in 0..TRIES {
        let found = match walk::inode(task, dirfd, path, follow(flags))? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        if let Ok(_pin) = pin::hold(task, pin::slot::WALK, found.inode) {
            let id = found.inode.id;
            return work(id, task.region.inode(id), found.mount).map(Place::Inside);
        }
    }
    Err(Errno::ESTALE)
}

/// Calls `work` on what a descriptor, or `Fd::CWD`, names.
fn descriptor<T>(
    task: &Task,
    fd: Fd,
    mut work: impl FnMut(InodeId, &Inode, MountId) -> Result<T>,
) -> Result<Place<T>> {
    if fd == Fd::CWD {
        let cwd = Spot::from_word(task.process.cwd.load(Relaxed)); // Relaxed: changes in its own process only.
        let id = cwd.inode.id;
        if id.is_none() {
            return Ok(Place::Outside(Outside::AsGiven));
        }
        return work(id, task.region.inode(id), cwd.mount).map(Place::Inside);
    }
    if table::whose(task, fd) == table::Whose::NotOurs {
        return Ok(Place::Outside(Outside::AsGiven));
    }
    let held = table::fget_any(task, fd)?;
    work(held.inode_id(), held.inode, held.mount()).map(Place::Inside)
}
