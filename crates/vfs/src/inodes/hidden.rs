//! Inodes that no name ever leads to: blobs, and content that files share. They have content only.

use lp_abi::Result;
use lp_abi::linux::S_IFREG;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef};

use crate::caller::task::Task;
use crate::content::{linking, map};
use crate::inodes::slot;

/// Creates one. The lane names it as after [`slot::take`].
///
/// # Errors
/// `ENOSPC` if there are no inodes left.
pub(super) fn create(task: &Task, root: u32) -> Result<InodeRef> {
    let made = slot::take(task, root, S_IFREG, 0, (0, 0))?;
    let flags = inode_flags::BLOB | S_IFREG & inode_flags::KIND;
    task.region.inode(made.id).flags.store(flags, Relaxed); // Relaxed: nobody can reach it yet.
    Ok(made)
}

/// Frees one that nobody has linked in.
pub(super) fn discard(task: &Task, id: InodeId) {
    free(task, id);
    task.region.settle::<Inode>(task.lane);
}

/// Frees one with its content.
pub(super) fn free(task: &Task, id: InodeId) {
    clear(task, id);
    slot::give(task, id);
}

/// Frees its content. May be repeated after a death.
pub(super) fn clear(task: &Task, id: InodeId) {
    let inode = task.region.inode(id);
    inode.data_seq.begin();
    linking::clear(task, id, inode, 0, map::END);
    inode.data_seq.end();
}
