//! The target of a call: an inode found by path or descriptor and kept alive until the call is done.

use lp_abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, InodeId, MountId, Spot};

use crate::caller::task::{Outside, Place, Task};
use crate::calls::keep;
use crate::descriptors::table;
use crate::lane::pin;
use crate::names::walk::{self, Follow, Found};

/// Maximum number of times that a path is resolved again because its target was removed; each means that
/// another process made progress.
const TRIES: u32 = 1000;

/// The path that stands for a descriptor's own file: what a magic link to a file without a name becomes. A
/// program cannot give it.
pub const ITSELF: UserPtr = {
    // SAFETY: a constant, which calls only read.
    unsafe { UserPtr::new(c"".as_ptr().cast()) }
};

/// Whether a path stands for the descriptor itself.
#[inline]
pub fn is_itself(path: UserPtr) -> bool {
    path.addr() == ITSELF.addr()
}

/// Whether an optional path is empty or absent. stat(2) and its kin take a null pointer for an empty path
/// (since
/// 6.11).
///
/// # Errors
/// `EFAULT`.
#[inline]
pub(crate) fn is_absent(path: UserPtr) -> Result<bool> {
    Ok(path.is_null() || walk::is_empty(path)?)
}

/// How `AT_SYMLINK_NOFOLLOW` in `flags` affects a walk.
#[inline]
pub(crate) fn follow(flags: u32) -> Follow {
    if flags & AT_SYMLINK_NOFOLLOW != 0 { Follow::No } else { Follow::Link }
}

/// Calls `work` on what `path` names from `dirfd`, and its mount, according to `AT_SYMLINK_NOFOLLOW` and
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
    found_at(task, dirfd, path, flags, |found, inode| work(found.inode.id, inode, found.mount))
}

/// [`at`] for work that also needs to know how the inode was reached.
///
/// # Errors
/// Those of [`at`].
#[inline]
pub(crate) fn found_at<T>(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    flags: u32,
    mut work: impl FnMut(&Found, &Inode) -> Result<T>,
) -> Result<Place<T>> {
    if is_itself(path) || flags & AT_EMPTY_PATH != 0 && walk::is_empty(path)? {
        return descriptor(task, dirfd, work);
    }
    for _ in 0..TRIES {
        let found = match walk::inode(task, dirfd, path, follow(flags))? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        if let Ok(_pin) = keep::hold(task, pin::slot::WALK, dirfd, found.spot()) {
            return work(&found, task.region.inode(found.inode.id)).map(Place::Inside);
        }
    }
    Err(Errno::ESTALE)
}

/// What a path names, or with `AT_EMPTY_PATH` in `flags` a descriptor, for calls on mounts. `which` is the
/// buffer.
///
/// # Errors
/// Those of path_resolution(7); `EBADF`.
pub(crate) fn found(
    task: &Task,
    at: (Fd, UserPtr),
    flags: u32,
    which: walk::PathBuffer,
) -> Result<Place<Found>> {
    let (fd, path) = at;
    if flags & AT_EMPTY_PATH == 0 || !is_absent(path)? {
        return match which {
            walk::PathBuffer::Path => walk::inode(task, fd, path, follow(flags)),
            walk::PathBuffer::Other => walk::second_inode(task, fd, path, follow(flags)),
        };
    }
    if fd != Fd::CWD && task.table.whose(fd) == table::Whose::NotOurs {
        return Ok(Place::Outside(Outside::AsGiven));
    }
    if fd == Fd::CWD {
        // Relaxed: one word, as seen.
        let cwd = Spot::from_word(task.directories.get().cwd.load(Relaxed));
        let parent = cwd.inode.id;
        return Ok(match cwd.inode.id.is_some() {
            true => {
                Place::Inside(Found { inode: cwd.inode, dirent: DirentId::NONE, parent, mount: cwd.mount })
            }
            false => Place::Outside(Outside::AsGiven),
        });
    }
    let held = task.fget_any(fd)?;
    Ok(Place::Inside(Found::of(&held)))
}

/// Calls `work` on the inode of a descriptor or of `Fd::CWD`.
fn descriptor<T>(task: &Task, fd: Fd, mut work: impl FnMut(&Found, &Inode) -> Result<T>) -> Result<Place<T>> {
    if fd == Fd::CWD {
        // Relaxed: one word, as seen.
        let cwd = Spot::from_word(task.directories.get().cwd.load(Relaxed));
        let id = cwd.inode.id;
        if id.is_none() {
            return Ok(Place::Outside(Outside::AsGiven));
        }
        let found = Found { inode: cwd.inode, dirent: DirentId::NONE, parent: id, mount: cwd.mount };
        return work(&found, task.region.inode(id)).map(Place::Inside);
    }
    if task.table.whose(fd) == table::Whose::NotOurs {
        return Ok(Place::Outside(Outside::AsGiven));
    }
    let held = task.fget_any(fd)?;
    work(&Found::of(&held), held.inode).map(Place::Inside)
}
