//! mkdir(2), mkdirat(2).

use lp_abi::linux::S_IFDIR;
use lp_abi::{Fd, Result, UserPtr};

use crate::caller::task::{Place, Task};
use crate::calls::create::{self, InitialContent, InodeKind};

/// Creates a directory.
///
/// # Errors
/// Those of path_resolution(7); `EEXIST`, `ENOSPC`, `EROFS`, `EACCES`, `EMLINK`.
pub fn mkdirat(task: &Task<'_>, dirfd: Fd, path: UserPtr, mode: u32) -> Result<Place<()>> {
    create::at(task, dirfd, path, |_| {
        // The kernel's vfs_mkdir keeps the permission bits and the sticky bit.
        Ok(InodeKind { mode: S_IFDIR | mode & 0o1777, rdev: 0, content: InitialContent::Empty })
    })
}
