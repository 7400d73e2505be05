//! chown(2), fchown(2), lchown(2), fchownat(2).

use lp_abi::linux::{S_IFDIR, S_IFMT, S_ISGID, S_ISUID, S_IXGRP};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::process::caps;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, MountId};

use crate::caller::below;
use crate::caller::event::Touched;
use crate::caller::id_map::{self, IdKind};
use crate::caller::task::{Place, Task};
use crate::calls::target;
use crate::inodes::ownership::Owners;
use crate::inodes::{inode, watched, xattrs};
use crate::lane::writer;
use crate::rights::credentials;

/// An id that does not change.
const KEEP: u32 = u32::MAX;

/// Sets owner and group of what a path names; -1 keeps the old value.
///
/// # Errors
/// Those of path_resolution(7); `EPERM` without the right, and for an immutable or append-only file; `EROFS`.
pub fn fchownat(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    owner: u32,
    group: u32,
    flags: u32,
) -> Result<Place<()>> {
    target::at(task, dirfd, path, flags, |id, inode, mount| change(task, (id, inode, mount), owner, group))
}

/// Sets owner and group of an open file.
///
/// # Errors
/// `EBADF`; otherwise those of [`fchownat`].
pub fn fchown(task: &Task, fd: Fd, owner: u32, group: u32) -> Result<()> {
    let held = task.fget_no_path(fd)?;
    change(task, (held.inode_id(), held.inode, held.mount()), owner, group)
}

fn change(task: &Task, (id, inode, mount): (InodeId, &Inode, MountId), owner: u32, group: u32) -> Result<()> {
    let is_new_mode = set(task, (id, inode, mount), owner, group)?;
    if (owner, group) != (KEEP, KEEP) || is_new_mode {
        watched::touched(task, id, inode, Touched::Attributes);
    }
    Ok(())
}

/// The ids of the run's namespace for those of the caller's.
///
/// # Errors
/// `EINVAL` for one that is not in the caller's namespace.
fn in_run(task: &Task, owner: u32, group: u32) -> Result<(u32, u32)> {
    let id = |kind, id: u32| match id {
        KEEP => Ok(KEEP),
        id => id_map::to_run(task.process, kind, id).ok_or(Errno::EINVAL),
    };
    Ok((id(IdKind::User, owner)?, id(IdKind::Group, group)?))
}

/// Returns whether the mode has changed too.
fn set(task: &Task, (id, inode, mount): (InodeId, &Inode, MountId), owner: u32, group: u32) -> Result<bool> {
    below::try_attributes(task, inode);
    let _writing = writer::begin(task, mount)?;
    let (owner, group) = in_run(task, owner, group)?;
    let _locked = inode::lock(task, id);
    // Relaxed throughout: under the lock; credentials change only in their own process.
    let fixed = inode_flags::IMMUTABLE | inode_flags::APPEND;
    if (owner, group) != (KEEP, KEEP) && inode.flags.load(Relaxed) & fixed != 0 {
        return Err(Errno::EPERM);
    }
    let (uid, gid) = (inode.uid.load(Relaxed), inode.gid.load(Relaxed));
    let owns = task.credentials.get().fsuid.load(Relaxed) == uid;
    let capable = credentials::capable_over(task, inode, caps::CHOWN);
    // The kernel's chown_ok and chgrp_ok: an owner may keep the owner, and give the file to one of its own
    // groups.
    let may_own = owner == KEEP || capable || owns && owner == uid;
    let may_group = group == KEEP || capable || owns && (group == gid || credentials::is_member(task, group));
    if !may_own || !may_group {
        return Err(Errno::EPERM);
    }
    let old = inode.mode.load(Relaxed);
    let mut mode = old;
    if mode & S_IFMT != S_IFDIR {
        mode &= !S_ISUID;
        if mode & S_IXGRP != 0 || !credentials::may_keep_setgid(task, inode) {
            mode &= !S_ISGID;
        }
        // The kernel's notify_change: clearing these bits is a chmod, which is the owner's right.
        if mode != old && !credentials::owns(task, inode) {
            return Err(Errno::EPERM);
        }
        if inode.xattr.load(Relaxed) != 0 {
            xattrs::drop_capability(task, id, inode);
        }
    }
    let or_keep = |new: u32, old: u32| if new == KEEP { old } else { new };
    let after = Owners { of: id, uid: or_keep(owner, uid), gid: or_keep(group, gid), mode, time: task.now() };
    after.carry_out(task);
    Ok(mode != old)
}
