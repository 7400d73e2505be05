//! move_mount(2), and mount(2) with `MS_MOVE`.

use lp_abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::mount::Groups;
use lp_region::sync::Ordering;
use lp_region::{DirentId, MountId, Spot};

use crate::caller::task::{Place, Task};
use crate::calls::landlock;
use crate::calls::link::Two;
use crate::calls::mount_at::{in_one_shape, is_mount, may_mount, point, uppermost};
use crate::calls::target;
use crate::life::mount_peers::Peers;
use crate::life::mount_tree::{self, Draft, Point, Tree};
use crate::life::{mount_end, mount_owner, mount_prune};
use crate::names::walk::{self, Found, PathBuffer};
use crate::names::{mounts, root, tree};

/// `MOVE_MOUNT_*` of linux/mount.h. The flags of the second path are those of the first, shifted.
mod flag {
    pub(super) const SYMLINKS: u32 = 1;
    pub(super) const EMPTY_PATH: u32 = 4;
    pub(super) const TO_SHIFT: u32 = 4;
    pub(super) const SET_GROUP: u32 = 0x100;
    pub(super) const BENEATH: u32 = 0x200;
    pub(super) const ALL: u32 = 0x377;
}

/// Moves a mount to another place, or makes a mount join another's peer group.
///
/// # Errors
/// Those of path_resolution(7) and move_mount(2); `EXDEV` if one side is the host's.
pub fn move_mount(task: &Task<'_>, from: (Fd, UserPtr), to: (Fd, UserPtr), flags: u32) -> Result<Two> {
    in_one_shape(task, || once(task, from, to, flags))
}

/// What move_mount(2) checks before its paths.
///
/// # Errors
/// `EPERM`; `EINVAL` for unknown flags, or those that exclude each other.
pub fn may_move(task: &Task<'_>, flags: u32) -> Result<()> {
    may_mount(task)?;
    let both = flag::SET_GROUP | flag::BENEATH;
    if flags & !flag::ALL != 0 || flags & both == both { Err(Errno::EINVAL) } else { Ok(()) }
}

fn once(task: &Task<'_>, from: (Fd, UserPtr), to: (Fd, UserPtr), flags: u32) -> Result<Two> {
    let at_flags = |flags: u32| {
        let nofollow = if flags & flag::SYMLINKS == 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
        nofollow | if flags & flag::EMPTY_PATH != 0 { AT_EMPTY_PATH } else { 0 }
    };
    let places = || -> Result<(Place<Found>, Place<Found>)> {
        let target = match target::found(task, to, at_flags(flags >> flag::TO_SHIFT), PathBuffer::Other)? {
            Place::Outside(outside) => Place::Outside(walk::keep(task, outside, PathBuffer::Other)?),
            inside => inside,
        };
        let source = match target::found(task, from, at_flags(flags), PathBuffer::Path) {
            // The kernel may find an error in the other path.
            Err(_) if matches!(target, Place::Outside(_)) => return Err(Errno::EXDEV),
            source => source?,
        };
        Ok((source, target))
    };
    let places = places();
    if let Ok((Place::Outside(old), Place::Outside(new))) = places {
        return Ok(Two::Outside { old: walk::keep(task, old, PathBuffer::Path)?, new });
    }
    may_move(task, flags)?;
    let (Place::Inside(source), Place::Inside(target)) = places? else { return Err(Errno::EXDEV) };
    landlock::may_mount(task)?;
    match flags & (flag::SET_GROUP | flag::BENEATH) {
        flag::SET_GROUP => set_group(task, &source, &target)?,
        flag::BENEATH => put(task, &source, &target, Side::Beneath)?,
        _ => put(task, &source, &target, Side::Above)?,
    }
    Ok(Two::Done)
}

/// Where a mount goes at a place at which others stand.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    /// On top of them.
    Above,
    /// Below the uppermost one.
    Beneath,
}

/// Moves a mount on top of what is at a place.
///
/// # Errors
/// `EINVAL`, `ELOOP`, `ENOENT`, `ENOSPC`.
pub(crate) fn to(task: &Task<'_>, from: &Found, at: &Found) -> Result<()> {
    put(task, from, at, Side::Above)
}

/// The kernel's do_move_mount.
fn put(task: &Task<'_>, from: &Found, at: &Found, side: Side) -> Result<()> {
    mount_end::collect(task);
    mount_tree::change(task, |tree| {
        let top = uppermost(task, at);
        let mut peers = Peers::of(task);
        let to = match side {
            Side::Above => point(task, &top),
            Side::Beneath if !is_mount(task, at) => return Err(Errno::EINVAL),
            Side::Beneath => beneath(task, tree, &peers, from.mount, top.mount)?,
        };
        let is_adrift = tree.is_adrift(from.mount);
        let is_whole = (tree.holds(from.mount) || is_adrift) && is_mount(task, from);
        let parent = tree.standing(from.mount).parent;
        if mount_owner::is_locked(task, from.mount) {
            return Err(Errno::EINVAL);
        }
        if !tree.holds(to.spot.mount) || !is_whole || !is_adrift && peers.is_shared(parent) {
            return Err(Errno::EINVAL);
        }
        if task.region.inode(from.inode.id).is_dir() != task.region.inode(top.inode.id).is_dir() {
            return Err(Errno::EINVAL);
        }
        let list = tree.branch(from.mount, |_| true);
        if peers.is_shared(to.spot.mount) && list.iter().any(|id| peers.get(id) == Groups::UNBINDABLE) {
            return Err(Errno::EINVAL);
        }
        if list.position(to.spot.mount).is_some() {
            return Err(Errno::ELOOP);
        }
        // Of those in one place the youngest is the lowest, so only a younger one can go below another.
        // Relaxed: immutable while in use.
        let serial = |id: MountId| task.region.mount(id).serial.load(Ordering::Relaxed);
        if side == Side::Beneath && serial(from.mount) < serial(top.mount) {
            return Err(Errno::EINVAL);
        }
        tree.transplant(&mut peers, &list, to)
    })?;
    mount_end::collect(task);
    Ok(())
}

/// The place directly below the mount `over` (the kernel's can_move_mount_beneath).
fn beneath(
    task: &Task<'_>,
    tree: &Tree<'_, '_>,
    peers: &Peers,
    from: MountId,
    over: MountId,
) -> Result<Point> {
    let at = tree.standing(over);
    let parent = mount_prune::shown_parent(task, over);
    let is_root = root::of(task).is_some_and(|root| root.mount == over)
        || mounts::are_whole(task) && parent == mounts::base(task, 0).mount;
    let from_root = task.region.mount(from).root();
    let is_covered = tree.children(from).any(|child| tree.standing(child).point == from_root);
    let is_inside = tree.branch(over, |_| true).position(from).is_some();
    if parent.is_none() || is_root || is_covered || is_inside || mount_owner::is_locked(task, over) {
        return Err(Errno::EINVAL);
    }
    let to = match parent == at.parent {
        true => Point { spot: Spot { inode: at.point, mount: parent }, dirent: at.dirent },
        false => {
            let inode = task.region.mount(parent).root();
            Point { spot: Spot { inode, mount: parent }, dirent: DirentId::NONE }
        }
    };
    // The copy that a receiver of `parent` gets would be on top of that receiver.
    let receives = |id: MountId| peers.receivers(parent).position(id).is_some();
    let would_cover = |id: MountId| receives(id) && task.region.mount(id).root() == to.spot.inode;
    if would_cover(over) || tree.holds(from) && would_cover(from) {
        return Err(Errno::EINVAL);
    }
    Ok(to)
}

/// The kernel's do_set_group: `to` joins the groups of `from`.
fn set_group(task: &Task<'_>, from: &Found, to: &Found) -> Result<()> {
    mount_tree::change(task, |tree| {
        if !tree.holds(from.mount) || !tree.holds(to.mount) || !is_mount(task, from) || !is_mount(task, to) {
            return Err(Errno::EINVAL);
        }
        let mut peers = Peers::of(task);
        let (groups, had) = (peers.get(from.mount), peers.get(to.mount));
        let has_none = |groups: Groups| groups == Groups::default() || groups == Groups::UNBINDABLE;
        let [source, target] = [from, to].map(|found| task.region.mount(found.mount));
        // Relaxed: immutable while in use.
        let is_other = source.superblock.load(Ordering::Relaxed) != target.superblock.load(Ordering::Relaxed);
        let is_below =
            source.root() == target.root() || tree::is_above(task, source.root().id, target.root().id);
        if has_none(groups) || !has_none(had) || is_other || !is_below {
            return Err(Errno::EINVAL);
        }
        peers.set(to.mount, groups);
        let mut draft = Draft::nothing();
        draft.regroup(task, &peers);
        Ok(draft)
    })
}
