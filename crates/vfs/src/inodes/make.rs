//! The creation of an inode, and freeing it with all that it has.

use lp_abi::Result;
use lp_abi::linux::S_IFDIR;
use lp_region::records::Inode;
use lp_region::{InodeId, InodeRef};

use crate::caller::task::Task;
use crate::content::{linking, map};
use crate::inodes::blob::{self, BlobKind};
use crate::inodes::{reflink, slot};

/// Creates the directory for root number `root`. The lane names it until the caller has linked it in and
/// settles it (`Region::settle::<Inode>`), or `discard`s it.
///
/// # Errors
/// `ENOSPC` if there are no inodes left.
pub fn create_root(task: &Task, root: u32, mode: u32, owner: (u32, u32)) -> Result<InodeRef> {
    slot::take(task, root, S_IFDIR | mode & 0o7777, 0, owner)
}

/// A new inode to which nothing leads yet. Dropped, it is freed.
#[must_use = "the inode is given back once this is dropped"]
pub struct NewInode<'t, 'r> {
    task: &'t Task<'r>,
    made: InodeRef,
}

impl<'t, 'r> NewInode<'t, 'r> {
    /// An inode of root number `root`, with one link; a directory with two.
    ///
    /// # Errors
    /// `ENOSPC`.
    #[inline(always)]
    pub(crate) fn new(
        task: &'t Task<'r>,
        root: u32,
        mode: u32,
        rdev: u32,
        owner: (u32, u32),
    ) -> Result<Self> {
        slot::take(task, root, mode, rdev, owner).map(|made| NewInode { task, made })
    }

    /// Its handle.
    #[inline]
    pub fn inode(&self) -> InodeRef {
        self.made
    }

    /// Call once something leads to it: the lane's `taken` no longer names it.
    #[inline]
    pub fn linked_in(self) -> InodeRef {
        let made = self.made;
        core::mem::forget(self);
        made
    }
}

impl Drop for NewInode<'_, '_> {
    fn drop(&mut self) {
        discard(self.task, self.made.id);
    }
}

/// Frees a new inode that nobody has linked in, and all that it has.
pub(crate) fn discard(task: &Task, id: InodeId) {
    clear(task, id);
    slot::give(task, id);
    task.region.settle::<Inode>(task.lane);
}

/// Frees what an inode holds: content and attributes. May be repeated after a death.
pub(crate) fn clear(task: &Task, id: InodeId) {
    let inode = task.region.inode(id);
    reflink::leave_freed(task, id);
    inode.data_seq.begin();
    linking::clear(task, id, inode, 0, map::END);
    for which in [BlobKind::Xattr, BlobKind::Acl, BlobKind::DefaultAcl] {
        blob::drop_of_freed(task, which.word(inode));
    }
    inode.data_seq.end();
}
