//! mknod(2), mknodat(2).

use lp_abi::linux::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::process::caps;

use crate::caller::task::{Place, Task};
use crate::calls::create::{self, InitialContent, InodeKind};
use crate::names::dir;
use crate::names::walk::Parent;
use crate::rights::{credentials, permission};

/// Device number of overlay file systems' whiteouts, which anybody may create.
const WHITEOUT: u32 = 0;

/// Creates a file, a device node, a FIFO or a socket.
///
/// # Errors
/// Those of path_resolution(7); `EPERM` for a directory or, without the capability, a device; `EINVAL` for
/// another type; `EEXIST`, `ENOENT` for a trailing slash, `ENOSPC`, `EROFS`, `EACCES`.
pub fn mknodat(task: &Task<'_>, dirfd: Fd, path: UserPtr, mode: u32, dev: u32) -> Result<Place<()>> {
    let kind = match mode & S_IFMT {
        0 => S_IFREG,
        S_IFREG | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK => mode & S_IFMT,
        S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    let is_device = kind == S_IFCHR || kind == S_IFBLK;
    create::at(task, dirfd, path, |parent| {
        if parent.trailing_slash {
            return Err(Errno::ENOENT);
        }
        let whiteout = kind == S_IFCHR && dev == WHITEOUT;
        if is_device && !whiteout && !credentials::capable_initially(task, caps::MKNOD) {
            return Err(refused_slow(task, parent));
        }
        let rdev = if is_device { dev } else { 0 };
        Ok(InodeKind { mode: kind | mode & 0o7777, rdev, content: InitialContent::Empty })
    })
}

/// Why a caller without the capability makes no device: the kernel's vfs_mknod looks at the directory first.
#[cold]
fn refused_slow(task: &Task<'_>, parent: &Parent) -> Errno {
    let check = || {
        let _writing = create::begin_in(task, parent.dir, parent.mount)?;
        let _locked = dir::enter(task, parent.dir)?;
        permission::may_create(task, task.region.inode(parent.dir.id))
    };
    check().err().unwrap_or(Errno::EPERM)
}
