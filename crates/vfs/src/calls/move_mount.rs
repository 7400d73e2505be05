//! move_mount(2), and mount(2) with `MS_MOVE`.

use lp_abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::mount::Groups;
use lp_region::sync::Ordering;

use crate::caller::task::{Place, Task};
use crate::calls::landlock;
use crate::calls::link::Two;
use crate::calls::mount_at::{in_one_shape, is_mount, may_mount, point, uppermost};
use crate::calls::target;
use crate::life::mount_end;
use crate::life::mount_peers::Peers;
use crate::life::mount_tree::{self, Draft};
use crate::names::walk::{self, Found, PathBuffer};
use crate::names::{dir, tree};

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
/// Those of path_resolution(7) and move_mount(2); `EXDEV` if one side is the host's; `EINVAL` for
/// `MOVE_MOUNT_BENEATH`.
pub fn move_mount(task: &Task<'_>, from: (Fd, UserPtr), to: (Fd, UserPtr), flags: u32) -> Result<Two> {
    in_one_shape(task, || once(task, from, to, flags))
}

/// What move_mount(2) checks before its paths.
///
/// # Errors
/// `EPERM`; `EINVAL` for unknown flags.
pub fn may_move(task: &Task<'_>, flags: u32) -> Result<()> {
    may_mount(task)?;
    if flags & !flag::ALL != 0 { Err(Errno::EINVAL) } else { Ok(()) }
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
    if flags & flag::BENEATH != 0 {
        return Err(Errno::EINVAL);
    }
    match flags & flag::SET_GROUP {
        0 => self::to(task, &source, &target)?,
        _ => set_group(task, &source, &target)?,
    }
    Ok(Two::Done)
}

/// The kernel's do_move_mount.
///
/// # Errors
/// `EINVAL`, `ELOOP`, `ENOENT`, `ENOSPC`.
pub(crate) fn to(task: &Task<'_>, from: &Found, at: &Found) -> Result<()> {
    mount_end::collect(task);
    mount_tree::change(task, |tree| {
        let at = uppermost(task, at);
        let is_adrift = tree.is_adrift(from.mount);
        let is_whole = (tree.holds(from.mount) || is_adrift) && is_mount(task, from);
        let parent = tree.standing(from.mount).parent;
        let mut peers = Peers::of(task);
        if !tree.holds(at.mount) || !is_whole || !is_adrift && peers.is_shared(parent) {
            return Err(Errno::EINVAL);
        }
        if dir::is(task.region.inode(from.inode.id)) != dir::is(task.region.inode(at.inode.id)) {
            return Err(Errno::EINVAL);
        }
        let list = tree.branch(from.mount, |_| true);
        if peers.is_shared(at.mount) && list.iter().any(|id| peers.get(id) == Groups::UNBINDABLE) {
            return Err(Errno::EINVAL);
        }
        if list.position(at.mount).is_some() {
            return Err(Errno::ELOOP);
        }
        tree.transplant(&mut peers, &list, point(task, &at))
    })?;
    mount_end::collect(task);
    Ok(())
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
