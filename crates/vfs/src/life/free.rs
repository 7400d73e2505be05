//! Freeing an open file, or an inode without links, that nothing names.
//!
//! The lane names what it claims, so that a reaper can go on where it died.

use lp_region::records::{Inode, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef};

use crate::caller::task::Task;
use crate::inodes::make;
use crate::lane::kept::Listed;
use crate::locks::file_lock;

/// Frees an open file that nothing names, except its slot, which its keeper frees. Returns false if that is
/// not possible at this time.
pub(crate) fn file(task: &Task, id: FileId, generation: u32) -> bool {
    let claim = &task.lane.claims[OpenFile::LIST];
    claim.store(u64::from(id.0) | u64::from(generation) << 32, Ordering::Release);
    let freed = task.region.file(id).custody.claim(task.lane_id.0) && empty_file(task, id, generation);
    claim.store(0, Ordering::Release);
    freed
}

/// Empties an open file in a chain that a lane has claimed. Releases the claim if the file is another by this
/// time, or if a live thread holds the lock that guards its locks. Returns whether the file is gone.
pub(crate) fn empty_file(task: &Task, id: FileId, generation: u32) -> bool {
    let file = task.region.file(id);
    let is_same = file.generation.load(Ordering::Acquire) == generation;
    // While claimed, it cannot change.
    if is_same && file.locked.load(Ordering::Relaxed) != 0 && !file_lock::try_drop_file(task, id) {
        file.custody.unclaim();
        return false;
    }
    if !is_same {
        file.custody.unclaim();
        return true;
    }
    file.inode.store(0, Ordering::Relaxed);
    file.in_flight.store(0, Ordering::Relaxed);
    file.generation.store(generation.wrapping_add(1), Ordering::Release);
    file.custody.make_husk();
    true
}

/// Frees an inode that nothing names, and its slot unless it is in a chain. Returns false if that is not
/// possible at this time.
pub(crate) fn inode(task: &Task, inode: InodeRef) -> bool {
    let claim = &task.lane.claims[Inode::LIST];
    claim.store(inode.to_word(), Ordering::Release);
    let record = task.region.inode(inode.id);
    let claimed = record.custody.claim(task.lane_id.0);
    let freed = claimed && is_unlinked(task, inode) && file_lock::try_drop_all(task, inode.id);
    if freed {
        claimed_inode(task, inode);
    } else if claimed {
        record.custody.unclaim();
    }
    claim.store(0, Ordering::Release);
    freed
}

/// [`inode`] for one that a sweep has found to be unnamed. Returns false if it cannot be freed at this time;
/// another lane may have freed it.
pub(crate) fn unnamed(task: &Task, of: InodeRef) -> bool {
    inode(task, of) || !is_unlinked(task, of)
}

/// Whether an inode is still the one that was meant, and has no links.
pub(crate) fn is_unlinked(task: &Task, inode: InodeRef) -> bool {
    let record = task.region.inode(inode.id);
    record.generation.load(Ordering::Acquire) == inode.generation && record.nlink.load(Ordering::Relaxed) == 0
}

/// Frees an inode that the lane has claimed.
fn claimed_inode(task: &Task, inode: InodeRef) {
    let record = task.region.inode(inode.id);
    make::clear(task, inode.id);
    let next = inode.generation.wrapping_add(1);
    task.lane.taken[Inode::SLAB].store(inode.id.0, Ordering::Release);
    // PAIRS: the acquire loads of walks and of stat: a later change implies the new generation.
    record.generation.store(next, Ordering::Release);
    if record.custody.clear_claimed() {
        task.region.give::<Inode>(task.lane, inode.id);
    } else {
        record.custody.make_husk();
    }
    task.region.settle::<Inode>(task.lane);
}
