//! umount2(2).

use lp_abi::linux::{MNT_DETACH, MNT_EXPIRE, MNT_FORCE, MS_RDONLY, UMOUNT_NOFOLLOW};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::mount::mount_flags;
use lp_region::mount_change::Set;
use lp_region::sync::Ordering;

use crate::caller::task::{Place, Task};
use crate::calls::mount_at::{in_one_shape, is_mount, may_mount, uppermost};
use crate::calls::{landlock, mount};
use crate::life::fs_options::Options;
use crate::life::mount_tree::{self, Draft, Tree};
use crate::life::{mount_end, mount_owner, reclaim};
use crate::names::root;
use crate::names::walk::{self, Follow, Found};

/// Removes the mount that a path names from the tree.
///
/// # Errors
/// Those of path_resolution(7) and umount2(2).
pub fn umount2(task: &Task<'_>, dirfd: Fd, path: UserPtr, flags: u32) -> Result<Place<()>> {
    if flags & !(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let follow = if flags & UMOUNT_NOFOLLOW != 0 { Follow::No } else { Follow::Link };
    reclaim::dead(task);
    // The kernel's mntput_no_expire.
    task.expires.set(true);
    let done = in_one_shape(task, || {
        let found = match walk::inode(task, dirfd, path, follow)? {
            // The directory where a walk starts may be covered.
            Place::Inside(found) => uppermost(task, &found),
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        may_mount(task)?;
        unmount(task, &found, flags).map(Place::Inside)
    });
    task.expires.set(false);
    done
}

fn unmount(task: &Task<'_>, found: &Found, flags: u32) -> Result<()> {
    let is_root = root::of(task).is_some_and(|root| root.mount == found.mount);
    if is_root && flags & MNT_DETACH == 0 {
        return close_root(task, found, flags);
    }
    let left = mount_tree::change(task, |tree| leave(task, tree, found, flags));
    if left == Err(Errno::EAGAIN) {
        // Relaxed: a mark of its own.
        task.region.mount(found.mount).flags.fetch_or(mount_flags::EXPIRING, Ordering::Relaxed);
    }
    left?;
    mount_end::collect(task);
    Ok(())
}

/// The kernel's do_umount_root: the file system of the process's root directory becomes read-only instead.
fn close_root(task: &Task<'_>, found: &Found, flags: u32) -> Result<()> {
    if !Tree::look(task).holds(found.mount) || !is_mount(task, found) || flags & MNT_EXPIRE != 0 {
        return Err(Errno::EINVAL);
    }
    landlock::may_mount(task)?;
    let superblock = task.region.mount(found.mount).superblock.load(Ordering::Relaxed); // Relaxed: immutable.
    mount::reconfigure(task, superblock, &Options::default(), (MS_RDONLY, MS_RDONLY))
}

fn leave<'r>(task: &Task<'r>, tree: &Tree<'_, 'r>, found: &Found, flags: u32) -> Result<Draft<'r>> {
    let id = found.mount;
    if !tree.holds(id) || !is_mount(task, found) || mount_owner::is_locked(task, id) {
        return Err(Errno::EINVAL);
    }
    landlock::may_mount(task)?;
    let record = task.region.mount(id);
    if flags & MNT_FORCE != 0 {
        // Relaxed: immutable while in use.
        mount_owner::may_reconfigure(task, record.superblock.load(Ordering::Relaxed))?;
    }
    if flags & MNT_EXPIRE != 0 && flags & (MNT_FORCE | MNT_DETACH) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & MNT_DETACH != 0 {
        return tree.prune(tree.subtree(id));
    }
    if !tree.is_free(id) {
        // Relaxed, below too: a mark of its own.
        record.flags.fetch_and(!mount_flags::EXPIRING, Ordering::Relaxed);
        return Err(Errno::EBUSY);
    }
    let is_expiring = record.flags.load(Ordering::Relaxed) & mount_flags::EXPIRING != 0;
    if flags & MNT_EXPIRE != 0 && !is_expiring {
        return Err(Errno::EAGAIN);
    }
    let mut alone = Set::default();
    alone.add(id);
    tree.prune(alone)
}
