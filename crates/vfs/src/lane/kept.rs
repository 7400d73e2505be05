//! What a lane keeps for later examination: closed files and unlinked inodes, in chains and a list of its
//! own.
//!
//! [`crate::life::reclaim`] decides when they are examined, [`crate::life::sweep`] how.

use lp_region::lane::{Lane, Unlinked};
use lp_region::records::{Inode, OpenFile};
use lp_region::slab::Retired;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeId, InodeRef, LaneId, Region, custody};

use crate::caller::task::Task;
use crate::lane::pin;

/// Records an inode that has lost its last link; it is freed once nothing has it open. The caller must hold
/// the inode's lock or be the only one to know the inode. The lane has it pinned and named in `taken`.
#[inline(always)]
pub(crate) fn orphan(task: &Task, id: InodeId) {
    let record = task.region.inode(id);
    let is_kept = record.custody.get() & custody::LISTED != 0;
    let generation = record.generation.load(Ordering::Relaxed);
    if is_kept || !list(task, InodeRef { id, generation }) {
        keep::<Inode>(task, task.lane, id.0);
    }
}

/// Adds an inode without links to the lane's list. Returns false if the list is full.
#[inline(always)]
pub(crate) fn list(task: &Task, inode: InodeRef) -> bool {
    let list = &task.lane.unlinked;
    let count = list.count.load(Ordering::Relaxed); // Relaxed: the list is the lane's own.
    if count as usize >= list.room() {
        return false;
    }
    let Some(place) = task.region.unlinked(task.lane, count as usize) else { return false };
    place.store(inode.to_word(), Ordering::Relaxed);
    let added = task.region.inode(inode.id).pages.load(Ordering::Relaxed);
    if added != 0 {
        let pages = list.pages.load(Ordering::Relaxed);
        list.pages.store(pages.saturating_add(added), Ordering::Relaxed);
    }
    // PAIRS: the acquire load in `listed`: the inode has no links.
    list.count.store(count + 1, Ordering::Release);
    true
}

/// Keeps an open file whose entry was removed, unless another lane keeps it. A sweep determines whether other
/// entries name it.
pub(crate) fn queue(task: &Task, id: FileId) {
    keep::<OpenFile>(task, task.lane, id.0);
    pin::clear(task, pin::slot::CLOSE);
}

/// Adds a record to the chain of `lane`. If the record is in a chain already, asks its keeper to examine it
/// again instead. The caller must own the lane, or bury it.
pub(crate) fn keep<T: Listed>(task: &Task, lane: &Lane, index: u32) {
    let own = lane.id.load(Ordering::Relaxed); // Relaxed: the lane's own.
    if task.region.slot::<T>(index).custody().ask(own) {
        link_in::<T>(task.region, lane, index);
    }
}

/// Links in a record that the lane keeps already.
pub(crate) fn link_in<T: Listed>(region: Region, lane: &Lane, index: u32) {
    let head = &lane.chains[T::LIST];
    // Relaxed: only the lane's owner changes the chain.
    region.slot::<T>(index).link().store(head.load(Ordering::Relaxed), Ordering::Relaxed);
    // PAIRS: the acquire in `chain`.
    head.store(index, Ordering::Release);
    let arrived = &lane.arrived[T::LIST];
    arrived.store(arrived.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}

/// A type of record that lanes keep in chains.
pub(crate) trait Listed: Retired {
    /// Index of the chain within the lane.
    const LIST: usize = Self::SLAB;
}

/// The records in a lane's chain, newest first. Another lane's chain may change meanwhile; the iterator stops
/// once it has left the chain.
pub(crate) fn chain<'r, T: Listed + 'r>(
    region: Region<'r>,
    lane: &'r Lane,
) -> impl Iterator<Item = u32> + use<'r, T> {
    // PAIRS: the release in `link_in`.
    let mut next = lane.chains[T::LIST].load(Ordering::Acquire);
    let owner = lane.id.load(Ordering::Relaxed);
    // Bounded: a damaged region may contain a ring.
    (0..T::SLOTS).map_while(move |_| {
        let index = next;
        let record = region.slot::<T>(index);
        let stays = index != 0 && custody::is_kept_by(record.custody().get(), owner);
        next = record.link().load(Ordering::Acquire);
        stays.then_some(index)
    })
}

/// The references in a lane's list to inodes that are still those that it listed, without links. A chain may
/// hold them too.
pub(crate) fn listed<'l, 'r: 'l>(
    region: Region<'r>,
    lane: &'l Lane,
) -> impl Iterator<Item = u64> + use<'l, 'r> {
    // PAIRS: the release store in `list`.
    let count = lane.unlinked.count.load(Ordering::Acquire) as usize;
    let words = (0..count).map_while(move |place| region.unlinked(lane, place));
    words.map(|word| word.load(Ordering::Relaxed)).filter(move |word| {
        let inode = Unlinked::inode(*word);
        let record = region.inode(inode.id);
        // Relaxed: a lane that gives the inode a name meanwhile also references it.
        record.generation.load(Ordering::Relaxed) == inode.generation
            && record.nlink.load(Ordering::Relaxed) == 0
    })
}

/// Every lane that ever had an owner.
pub(crate) fn all_lanes(region: Region<'_>) -> impl Iterator<Item = LaneId> + use<> {
    use lp_region::layout as at;
    (1..region.header().lane_limit.load(Ordering::Acquire).min(at::LANES as u32)).map(LaneId)
}
