//! `strictatime`: each read changes the access time.
//!
//! A read compares `Inode::atime_due` with the clock and does nothing before. In a file system with a strict
//! mount that word stays 0, so reads through any of its mounts look closer, and no other read pays. Whoever
//! makes a mount strict clears the words that relatime has set. A reader that sets one looks at the mounts
//! again afterwards; if it is killed in between, that file stays relatime until it changes.

use lp_region::InodeId;
use lp_region::MountId;
use lp_region::mount::mount_flags;
use lp_region::records::Inode;
use lp_region::slab::Slot;
use lp_region::sync::{Ordering, heavy_barrier, light_barrier};

use crate::caller::task::Task;

/// Whether a mount with these flags is strict.
pub(crate) fn is_one(flags: u32) -> bool {
    flags & (mount_flags::NOATIME | mount_flags::RELATIME) == 0
}

/// Whether some mount of an inode's file system is.
fn is_any(task: &Task, inode: &Inode) -> bool {
    // Relaxed, all: words of a moment, ordered by the barriers.
    let root = inode.root.load(Ordering::Relaxed);
    task.region.mounts().any(|id| {
        let record = task.region.mount(id);
        record.superblock.load(Ordering::Relaxed) == root
            && record.state().is_mount()
            && is_one(record.flags.load(Ordering::Relaxed))
    })
}

/// Says when a read is to look at the access time again, unless each one has to. The caller must hold the
/// inode's lock.
pub(super) fn set_due(task: &Task, inode: &Inode, due: u32) {
    if is_any(task, inode) {
        return;
    }
    inode.atime_due.store(due, Ordering::Relaxed); // Relaxed: a hint, ordered by the barrier.
    // PAIRS: the heavy barrier in `begin`.
    light_barrier();
    if is_any(task, inode) {
        inode.atime_due.store(0, Ordering::Relaxed);
    }
}

/// A mount has become strict.
pub(crate) fn begin(task: &Task, mount: MountId) {
    // Relaxed: immutable while in use.
    let root = task.region.mount(mount).superblock.load(Ordering::Relaxed);
    // PAIRS: the light barrier in `set_due`. A process without barriers leaves some files relatime.
    let _ = heavy_barrier();
    for id in 1..=task.region.header().slabs[Inode::SLAB].last() {
        let inode = task.region.inode(InodeId(id));
        if inode.root.load(Ordering::Relaxed) == root {
            inode.atime_due.store(0, Ordering::Relaxed); // Relaxed: a hint; 0 is always right.
        }
    }
}
