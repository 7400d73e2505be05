//! Taking an entry out of its directory: what unlink, rmdir and the end of a file system have in common.

use lp_abi::{Errno, Result};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeRef};

use crate::caller::below;
use crate::caller::task::Task;
use crate::names::change::{self, Change, Links};
use crate::names::dir;
use crate::rights::permission::Victim;

/// Takes the entry out and gives the links that are left. The caller holds the locks of the directory and the
/// inode.
pub(crate) fn take(
    task: &Task<'_>,
    dir: InodeRef,
    entry: DirentId,
    target: InodeRef,
    what: Victim,
) -> Result<u32> {
    let victim = task.region.inode(target.id);
    let mut change = Change::at(task.now());
    let mut after = dir::now(task.region, dir.id);
    after.entries = after.entries.saturating_sub(1);
    after.tail = dir::tail_without(task.region, entry);
    let nlink = match what {
        Victim::File => fewer_links(victim),
        // Another than the one that was looked at.
        Victim::Directory if below::is_pending(victim) => return Err(Errno::ESTALE),
        Victim::Directory if victim.entries.load(Ordering::Relaxed) != 0 => return Err(Errno::ENOTEMPTY),
        Victim::Directory => {
            after.nlink = after.nlink.saturating_sub(1);
            0
        }
    };
    change.dirs[0] = after;
    change.removed = entry;
    change.inodes[0] = Links { id: target.id, nlink };
    change::perform(task, &change);
    Ok(nlink)
}

/// Links that a file has once one is gone.
pub(crate) fn fewer_links(inode: &Inode) -> u32 {
    inode.nlink.load(Ordering::Relaxed).saturating_sub(1) // Relaxed: under the inode's lock.
}
