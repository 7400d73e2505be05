//! Tidying the lists and chains of a lane: what was freed leaves them, and its slots become free.

use lp_region::lane::{Lane, UNNAMED, Unlinked};
use lp_region::records::{Inode, OpenFile};
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef, LaneId, Region, custody};

use crate::caller::task::Task;
use crate::lane::kept::{Listed, all_lanes, link_in, listed};
use crate::life::{free, grace};

/// Tidies a lane's list and chain of inodes. Returns the number that stay in the chain. The caller must own
/// the lane.
pub(crate) fn inodes(task: &Task, lane: &Lane) -> u32 {
    list(task, lane);
    let region = task.region;
    let linked = |id: u32| region.inode(InodeId(id)).nlink.load(Ordering::Relaxed) != 0;
    chain::<Inode>(region, lane, &linked)
}

/// Removes from a lane's list what was freed or is in a chain, and makes room: if many stay in use, they move
/// to the chain. The caller must own the lane.
fn list(task: &Task, lane: &Lane) {
    let is_in_chain =
        |word: u64| task.region.inode(Unlinked::inode(word).id).custody.get() & custody::LISTED != 0;
    let mut in_use = 0;
    compact(task.region, lane, |word| {
        in_use += usize::from(word & UNNAMED == 0);
        !is_in_chain(word)
    });
    lane.unlinked.pages.store(0, Ordering::Relaxed); // Relaxed: the lane's own.
    if in_use > lane.unlinked.room() / 2 {
        compact(task.region, lane, |word| {
            word & UNNAMED != 0 || !move_to_chain(task, lane, Unlinked::inode(word))
        });
    }
}

/// Removes from a lane's list what was freed, and what does not stay. The caller must own the lane.
fn compact(region: Region, lane: &Lane, mut stays: impl FnMut(u64) -> bool) {
    let mut kept = 0;
    for word in listed(region, lane).filter(|word| stays(*word)) {
        // Relaxed: the lane's own. Never beyond the place from which the word was read.
        if let Some(place) = region.unlinked(lane, kept) {
            place.store(word, Ordering::Relaxed);
        }
        kept += 1;
    }
    lane.unlinked.count.store(kept as u32, Ordering::Release);
    lane.unlinked.unnamed.store(kept as u32, Ordering::Relaxed); // Relaxed: a bound, only for the owner.
}

/// Moves an inode from a lane's list to its chain. Returns false if somebody may be about to free it, or to
/// release it again. The caller must own the lane.
fn move_to_chain(task: &Task, lane: &Lane, inode: InodeRef) -> bool {
    let own = lane.id.load(Ordering::Relaxed);
    let custody = &task.region.inode(inode.id).custody;
    let unlisting = &lane.unlisting[Inode::LIST];
    unlisting.store(inode.id.0, Ordering::Release);
    let claimed = custody.claim(own);
    // While claimed, it cannot change.
    if claimed && free::is_unlinked(task, inode) && custody.keep_claimed(own) {
        link_in::<Inode>(task.region, lane, inode.id.0);
    } else if claimed {
        custody.unclaim();
    }
    unlisting.store(0, Ordering::Release);
    claimed
}

/// Removes husks from a lane's chain and frees their slots, and removes the records that `leaves` names.
/// Returns the number that stay. The caller must own the lane.
pub(crate) fn chain<T: Listed>(region: Region, lane: &Lane, leaves: &dyn Fn(u32) -> bool) -> u32 {
    let own = lane.id.load(Ordering::Relaxed);
    let mut kept = 0;
    let mut place = &lane.chains[T::LIST];
    for _ in 0..T::SLOTS {
        let index = place.load(Ordering::Relaxed); // Relaxed: only the lane's owner changes the chain.
        let record = region.slot::<T>(index);
        let word = record.custody().get();
        if index == 0 || !custody::is_kept_by(word, own) {
            break;
        }
        let next = record.link().load(Ordering::Relaxed);
        if word & custody::HUSK != 0 {
            // The lane answers for the slot until a cache holds it.
            lane.taken[T::SLAB].store(index, Ordering::Release);
            place.store(next, Ordering::Release);
            record.custody().clear();
            region.give::<T>(lane, T::id(index));
            region.settle::<T>(lane);
        } else if word & (custody::ASKED | custody::CLAIMED) == 0 && leaves(index) {
            let unlisting = &lane.unlisting[T::LIST];
            unlisting.store(index, Ordering::Release);
            place.store(next, Ordering::Release);
            if !record.custody().unlist() {
                // Somebody has released it meanwhile.
                link_in::<T>(region, lane, index);
            }
            unlisting.store(0, Ordering::Release);
        } else {
            kept += 1;
            place = record.link();
        }
    }
    kept
}

/// Tidies the lists that former owners left in lanes without an owner.
pub(crate) fn unowned(task: &Task) {
    let region = task.region;
    for id in all_lanes(region) {
        let lane = region.lane(id);
        // Relaxed: hints.
        let left = lane.unlinked.count.load(Ordering::Relaxed)
            | lane.chains[OpenFile::LIST].load(Ordering::Relaxed)
            | lane.chains[Inode::LIST].load(Ordering::Relaxed)
            | lane.closed.idle.load(Ordering::Relaxed);
        if left == 0 || lane.process.load(Ordering::Relaxed) != 0 {
            continue;
        }
        let tid = task.lane.tid.load(Ordering::Relaxed);
        if let Some(owned) = region.try_claim_lane(LaneId(id.0), task.process_id, tid) {
            grace::free_idle(task, lane, usize::MAX);
            chain::<OpenFile>(region, lane, &|_| false);
            inodes(task, lane);
            region.release_lane(owned);
        }
    }
}
