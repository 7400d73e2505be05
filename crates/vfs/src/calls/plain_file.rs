//! What the fast paths that change names ask of a file.

use lp_region::records::Inode;

use crate::caller::task::Task;
use crate::inodes::inode::{self, Locked};
use crate::names::hash::Hit;
use crate::names::mounts;
use crate::rights::permission;

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
