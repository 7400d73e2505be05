//! chmod(2), fchmod(2), fchmodat(2), fchmodat2(2).

use lp_abi::linux::{S_IFLNK, S_IFMT, S_ISGID};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, MountId};

use crate::caller::below;
use crate::caller::event::Touched;
use crate::caller::task::{Place, Task};
use crate::calls::target;
use crate::inodes::inode::{self, Touch};
use crate::inodes::watched;
use crate::lane::writer;
use crate::life::reclaim;
use crate::names::tree;
use crate::rights::{acl, credentials};

/// Sets the permission bits of what a path names. The door checks flags (`EINVAL`).
///
/// # Errors
/// Those of path_resolution(7); `EPERM` if the caller does not own it, and for an immutable or append-only
/// file; `EROFS`; `EOPNOTSUPP` for a symbolic link.
pub fn fchmodat(task: &Task, dirfd: Fd, path: UserPtr, mode: u32, flags: u32) -> Result<Place<()>> {
    target::at(task, dirfd, path, flags, |id, inode, mount| change(task, (id, inode, mount), mode))
}

/// Sets the permission bits of an open file.
///
/// # Errors
/// `EBADF`; otherwise those of [`fchmodat`].
pub fn fchmod(task: &Task, fd: Fd, mode: u32) -> Result<()> {
    let held = task.fget_no_path(fd)?;
    change(task, (held.inode_id(), held.inode, held.mount()), mode)
}

fn change(task: &Task, (id, inode, mount): (InodeId, &Inode, MountId), mode: u32) -> Result<()> {
    // An ACL is written anew.
    reclaim::once_more(task, || set(task, (id, inode, mount), mode))?;
    watched::touched(task, id, inode, Touched::Attributes);
    Ok(())
}

fn set(task: &Task, (id, inode, mount): (InodeId, &Inode, MountId), mode: u32) -> Result<()> {
    below::try_attributes(task, inode);
    let _writing = writer::begin(task, mount)?;
    let _locked = inode::lock(task, id);
    // Relaxed throughout: under the lock.
    let old = inode.mode.load(Relaxed);
    if inode.flags.load(Relaxed) & (inode_flags::IMMUTABLE | inode_flags::APPEND) != 0 {
        return Err(Errno::EPERM);
    }
    // As in the kernel's notify_change, whoever owns it.
    if old & S_IFMT == S_IFLNK {
        return Err(Errno::EOPNOTSUPP);
    }
    if !credentials::owns(task, inode) {
        return Err(Errno::EPERM);
    }
    let mut bits = mode & 0o7777;
    // The kernel's setattr_prepare: without the capability only members of the group may set this bit.
    if !credentials::may_keep_setgid(task, inode) {
        bits &= !S_ISGID;
    }
    let _shift = (inode.is_dir() && mode & 0o111 != 0o111).then(|| tree::shift(task));
    let mode = old & S_IFMT | bits;
    if acl::chmod(task, id, inode, mode)? {
        return Ok(());
    }
    let now = task.now();
    inode.seq.begin();
    inode.mode.store(mode, Relaxed);
    inode::touch_in_section(inode, Touch::Change, now);
    inode.seq.end();
    Ok(())
}
