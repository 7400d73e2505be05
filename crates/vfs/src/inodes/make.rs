//! The creation of an inode, and freeing it with all that it has.

use lp_abi::linux::{S_IFDIR, S_IFMT, S_IFREG};
use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, InodeRef};

use crate::caller::task::Task;
use crate::content::allowance::{self, What};
use crate::content::{linking, map};
use crate::inodes::blob::{self, BlobKind};
use crate::inodes::{inode, reflink};

/// Creates the directory for root number `root`. The lane names it until the caller has linked it in and
/// settles it (`Region::settle::<Inode>`), or `discard`s it.
///
/// # Errors
/// `ENOSPC` if there are no inodes left.
pub fn create_root(task: &Task, root: u32, mode: u32, owner: (u32, u32)) -> Result<InodeRef> {
    make(task, root, S_IFDIR | mode & 0o7777, 0, owner)
}

/// Creates an inode that no name ever leads to, for a blob or for content that files share. The lane names it
/// as after [`create_root`].
///
/// # Errors
/// Those of [`create_root`].
pub(crate) fn create_hidden(task: &Task, root: u32) -> Result<InodeRef> {
    let made = make(task, root, S_IFREG, 0, (0, 0))?;
    let flags = inode_flags::BLOB | S_IFREG & inode_flags::KIND;
    task.region.inode(made.id).flags.store(flags, Relaxed); // Relaxed: nobody can reach it yet.
    Ok(made)
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
        make(task, root, mode, rdev, owner).map(|made| NewInode { task, made })
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

#[inline(always)]
fn make(task: &Task, root: u32, mode: u32, rdev: u32, owner: (u32, u32)) -> Result<InodeRef> {
    let region = task.region;
    let id = region.take::<Inode>(task.lane)?;
    let inode = region.inode(id);
    fill(inode, mode, rdev, root, owner);
    let made = InodeRef { id, generation: inode.generation.load(Relaxed) }; // Relaxed: the caller's own.
    inode.number.store(inode::own_number(region, made), Relaxed); // Relaxed: nobody can reach it yet.
    if allowance::charge(task, root, What::Inodes, 1) == 0 {
        discard(task, id);
        return Err(Errno::ENOSPC);
    }
    let now = task.now();
    inode::set_time(&inode.atime, now);
    inode::set_time(&inode.mtime, now);
    inode::set_changed(inode, now);
    inode.btime.store(now.sec as u64, Relaxed);
    inode.btime_nsec.store(now.nsec, Relaxed);
    inode.lock.set_key(id.0);
    Ok(made)
}

/// Initialises an inode. Relaxed stores throughout: nobody can reach it before it is linked in, which
/// publishes it.
#[inline(always)]
fn fill(inode: &Inode, mode: u32, rdev: u32, root: u32, owner: (u32, u32)) {
    // A lane that died while it freed the slot may have left its sections open.
    if (inode.seq.read() | inode.data_seq.read()) & 1 != 0 {
        close_slow(inode);
    }
    inode.mode.store(mode, Relaxed);
    inode.nlink.store(if mode & S_IFMT == S_IFDIR { 2 } else { 1 }, Relaxed);
    inode.uid.store(owner.0, Relaxed);
    inode.gid.store(owner.1, Relaxed);
    inode.rdev.store(rdev, Relaxed);
    inode.root.store(root, Relaxed);
    inode.flags.store(mode & inode_flags::KIND, Relaxed);
    for word in [&inode.acl, &inode.default_acl, &inode.xattr] {
        word.store(0, Relaxed);
    }
    for word in [&inode.entries, &inode.parent, &inode.self_dirent, &inode.locks, &inode.atime_due] {
        word.store(0, Relaxed);
    }
    inode.pages.store(0, Relaxed);
    for word in [&inode.size, &inode.map, &inode.tail] {
        word.store(0, Relaxed);
    }
}

/// Closes the sections that a lane left open.
#[cold]
fn close_slow(inode: &Inode) {
    for seq in [&inode.seq, &inode.data_seq] {
        if seq.read() & 1 != 0 {
            seq.end();
        }
    }
}

/// Frees a new inode that nobody has linked in.
pub(crate) fn discard(task: &Task, id: InodeId) {
    free(task, id);
    task.region.settle::<Inode>(task.lane);
}

/// Frees an inode and all that it has. Only readers that check its generation can still reach it.
pub(crate) fn free(task: &Task, id: InodeId) {
    let inode = task.region.inode(id);
    clear(task, id);
    inode.nlink.store(0, Relaxed); // Relaxed: nobody can reach it.
    // PAIRS: the acquire loads of walks and of stat: a later change implies the new generation.
    inode.generation.store(inode.generation.load(Relaxed).wrapping_add(1), Release);
    task.region.give::<Inode>(task.lane, id);
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
