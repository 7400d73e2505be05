//! Slots of inodes: taking one for a new inode, and giving it back.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, InodeRef};

use crate::caller::task::Task;
use crate::content::allowance::{self, What};
use crate::inodes::inode;

/// Takes a slot for an inode of root number `root`, with one link; a directory with two. The lane names it
/// until the caller has linked it in and settles it (`Region::settle::<Inode>`), or gives it back.
///
/// # Errors
/// `ENOSPC` if there are no inodes left.
#[inline(always)]
pub(super) fn take(task: &Task, root: u32, mode: u32, rdev: u32, owner: (u32, u32)) -> Result<InodeRef> {
    let region = task.region;
    let id = region.take::<Inode>(task.lane)?;
    let inode = region.inode(id);
    fill(inode, mode, rdev, root, owner);
    let made = InodeRef { id, generation: inode.generation.load(Relaxed) }; // Relaxed: the caller's own.
    inode.number.store(inode::own_number(region, made), Relaxed); // Relaxed: nobody can reach it yet.
    if allowance::charge(task, root, What::Inodes, 1) == 0 {
        give(task, id);
        region.settle::<Inode>(task.lane);
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

/// Gives back the slot of an inode that holds nothing any more. Only readers that check its generation can
/// still reach it.
#[inline]
pub(super) fn give(task: &Task, id: InodeId) {
    let inode = task.region.inode(id);
    inode.nlink.store(0, Relaxed); // Relaxed: nobody can reach it.
    // PAIRS: the acquire loads of walks and of stat: a later change implies the new generation.
    inode.generation.store(inode.generation.load(Relaxed).wrapping_add(1), Release);
    task.region.give::<Inode>(task.lane, id);
}
