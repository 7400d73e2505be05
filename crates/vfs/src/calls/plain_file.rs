//! What the fast paths that change names ask of a directory, and of a file in it.

use lp_region::Spot;
use lp_region::records::Inode;

use crate::caller::task::Task;
use crate::inodes::inode::{self, Locked};
use crate::lane::writer::{self, Writing};
use crate::names::hash::Hit;
use crate::names::{dir, mounts};
use crate::rights::permission;

/// Begins to write in a mount, and locks a directory; `None` if either is gone, if the mount is read-only, or
/// if anything else is to be looked at before names in the directory change.
#[inline(always)]
pub(super) fn enter<'t, 'r>(task: &'t Task<'r>, at: Spot) -> Option<(Writing<'t, 'r>, Locked<'r>)> {
    let writing = writer::begin_walked(task, at.mount).ok()?;
    let locked = dir::enter(task, at.inode).ok()?;
    if !permission::may_change_plainly(task, task.region.inode(at.inode.id)) {
        return None;
    }
    Some((writing, locked))
}

/// Locks the file that an entry names, of a directory whose lock is held; `None` if it is a directory, if its
/// lock is in somebody's hands, or if anything else is to be looked at before its names change.
#[inline(always)]
pub(super) fn lock<'r>(task: &Task<'r>, hit: Hit) -> Option<(Locked<'r>, &'r Inode)> {
    if hit.is_directory() {
        return None;
    }
    let id = hit.target().id;
    let file = task.region.inode(id);
    let locked = inode::lock_at_once(task, id)?;
    (permission::may_go_plainly(file) && !mounts::is_covered(task, id)).then_some((locked, file))
}
