//! symlink(2), symlinkat(2).

use lp_abi::linux::S_IFLNK;
use lp_abi::{Errno, Fd, Result, UserPtr};

use crate::caller::task::{Place, Task};
use crate::calls::create;
use crate::names::walk::{self, PathBuffer};

/// Creates a symbolic link to `target` at a path.
///
/// # Errors
/// Those of path_resolution(7); `ENOENT` for an empty target, `ENAMETOOLONG` for one above 4,095 bytes;
/// `EEXIST`, `ENOSPC`, `EROFS`.
pub fn symlinkat(task: &Task<'_>, target: UserPtr, dirfd: Fd, path: UserPtr) -> Result<Place<()>> {
    walk::copy_path(task, PathBuffer::Other, target)?;
    create::at(task, dirfd, path, |parent| {
        if parent.trailing_slash {
            return Err(Errno::ENOENT);
        }
        Ok(create::InodeKind {
            mode: S_IFLNK | 0o777,
            rdev: 0,
            content: create::InitialContent::Target(PathBuffer::Other),
        })
    })
}
