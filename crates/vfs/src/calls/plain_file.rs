//! What the fast paths that change names ask of a directory, and of a file in it.

use lp_region::InodeRef;
use lp_region::records::Inode;

use crate::caller::task::Task;
use crate::inodes::inode::{self, Locked};
use crate::names::hash::{Hit, Way};
use crate::names::name::{Key, Name};
use crate::names::{dir, mounts, walk};
use crate::rights::permission;

/// Locks a directory for a writer of its mount; `None` if it is gone, or if anything else is to be looked at
/// before names in it change.
#[inline(always)]
pub(super) fn enter<'r>(task: &Task<'r>, dir: InodeRef) -> Option<Locked<'r>> {
    let locked = dir::enter(task, dir).ok()?;
    permission::may_change_plainly(task, task.region.inode(dir.id)).then_some(locked)
}

/// Whether a directory has no such name. Takes no lock, so it waits for nobody, and nobody waits for it.
#[cold]
pub(super) fn is_missing(task: &Task<'_>, dir: InodeRef, name: &Name<'_>) -> bool {
    let key = Key::new(dir.id, name);
    matches!(walk::look_up(task, dir, &key, &Way::of(task.region, key.hash)), Some(None))
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
