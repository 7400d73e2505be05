//! umount2(2).

use lp_abi::linux::{MNT_DETACH, MNT_EXPIRE, MNT_FORCE, UMOUNT_NOFOLLOW};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::layout::MOUNTS;
use lp_region::mount::mount_flags;
use lp_region::sync::Ordering;

use crate::caller::task::{Place, Task};
use crate::calls::mount::{is_mount, may_mount};
use crate::life::mount_tree::Tree;
use crate::life::reap;
use crate::names::walk::{self, Follow, Found};

/// Removes the mount that a path names from the tree.
///
/// # Errors
/// Those of path_resolution(7) and umount2(2); `EBUSY` for a mount of the command line.
pub fn umount2(task: &Task<'_>, dirfd: Fd, path: UserPtr, flags: u32) -> Result<Place<()>> {
    if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let follow = if flags & UMOUNT_NOFOLLOW != 0 { Follow::No } else { Follow::Link };
    let found = match walk::inode(task, dirfd, path, follow)? {
        Place::Inside(found) => found,
        Place::Outside(outside) => return Ok(Place::Outside(outside)),
    };
    may_mount(task)?;
    reap::dead(task);
    unmount(task, &found, flags).map(Place::Inside)
}

fn unmount(task: &Task<'_>, found: &Found, flags: u32) -> Result<()> {
    let tree = Tree::lock(task);
    let id = found.mount;
    if !tree.holds(id) || !is_mount(task, found) {
        return Err(Errno::EINVAL);
    }
    let record = task.region.mount(id);
    if flags & MNT_EXPIRE != 0 && flags & (MNT_FORCE | MNT_DETACH) != 0 {
        return Err(Errno::EINVAL);
    }
    // Relaxed: under the lock.
    if record.parent.load(Ordering::Relaxed) == 0 {
        return Err(Errno::EBUSY);
    }
    if flags & MNT_DETACH != 0 {
        tree.detach(&tree.subtree(id));
    } else {
        if tree.children(id).next().is_some() || tree.is_used(id) {
            record.flags.fetch_and(!mount_flags::EXPIRING, Ordering::Relaxed);
            return Err(Errno::EBUSY);
        }
        let asked = flags & MNT_EXPIRE != 0;
        if asked
            && record.flags.fetch_or(mount_flags::EXPIRING, Ordering::Relaxed) & mount_flags::EXPIRING == 0
        {
            return Err(Errno::EAGAIN);
        }
        let mut each = [0; MOUNTS];
        each[id.index()] = 1;
        tree.detach(&each);
    }
    tree.collect();
    Ok(())
}
