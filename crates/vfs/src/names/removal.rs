//! Removing an entry from its directory: the common part of unlink, rmdir and the destruction of a file
//! system.

use lp_abi::{Errno, Result};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeRef};

use crate::caller::below;
use crate::caller::task::Task;
use crate::names::change::{self, Links, Plain, Seats};
use crate::names::dir;
use crate::rights::permission::Victim;

/// Removes the entry and returns the number of links left. The caller must hold the locks of the directory
/// and the inode.
#[inline(always)]
pub(crate) fn take(
    task: &Task<'_>,
    dir: InodeRef,
    entry: DirentId,
    target: InodeRef,
    what: Victim,
) -> Result<u32> {
    let victim = task.region.inode(target.id);
    let time = task.now();
    let (mut after, seat) = dir::without_entry(task.region, dir.id, entry);
    let nlink = match what {
        Victim::File => fewer_links(victim),
        // Not the one that was examined.
        Victim::Directory if below::is_pending(victim) => return Err(Errno::ESTALE),
        Victim::Directory if victim.entries.load(Ordering::Relaxed) != 0 => return Err(Errno::ENOTEMPTY),
        Victim::Directory => {
            after.nlink = after.nlink.saturating_sub(1);
            0
        }
    };
    let links = Links { id: target.id, nlink };
    let seats = Seats { added: None, removed: seat };
    let change = Plain { dir: after, added: DirentId::NONE, removed: entry, links, time };
    change::perform_plain(task, &change, seats);
    Ok(nlink)
}

/// A file's link count after one link is removed.
#[inline(always)]
pub(crate) fn fewer_links(inode: &Inode) -> u32 {
    inode.nlink.load(Ordering::Relaxed).saturating_sub(1) // Relaxed: under the inode's lock.
}
