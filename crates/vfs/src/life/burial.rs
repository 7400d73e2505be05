//! Burials: finishing what a dead lane had begun, exactly once.

use lp_region::LaneId;
use lp_region::layout::LANE_BITS;
use lp_region::lock::{Lanes, Undertaker};
use lp_region::order::{self, LockGuard, Rank};
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::content::hand;
use crate::inodes::{blob, membership, ownership, stamps};
use crate::lane::intent::op;
use crate::lane::mount_claim;
use crate::locks::file_lock;
use crate::names::{change, hash};

/// Finishes or undoes what the dead `lane` had begun, once: a second caller finds it done.
///
/// The caller wants a lock that the lane holds, or is burying the lane. The dead lane still owns all locks
/// that it holds. Nobody takes one over before this is done, so a replay may change what they guard.
#[cold]
pub(crate) fn repair(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    // A replay that takes over another lock of the same dead lane comes back here.
    if is_buried(task, lane) || record.burial.holder() == task.lane_id {
        return;
    }
    let _burial = lock_burial(task, lane);
    if !is_buried(task, lane) {
        // Pages first: a replay may free the same pages again, and they may then have another owner.
        hand::repair(task, lane);
        replay(task, lane);
        file_lock::settle_in_hand(task, record);
    }
}

/// Whether a dead lane has been buried; it may have a new owner.
pub(crate) fn is_buried(task: &Task, lane: LaneId) -> bool {
    task.region.lane(lane).generation.load(Ordering::Acquire) != lane.0 >> LANE_BITS
}

/// Takes the burial lock of a dead lane like [`lock_burial`], unless a live thread holds it.
pub(crate) fn lock_burial_unless_held<'r>(task: &Task<'r>, lane: LaneId) -> Option<LockGuard<'r>> {
    let burial = &task.region.lane(lane).burial;
    if burial.try_lock(task.lane_id) {
        let of = order::of(&task.lane.holding);
        order::took(of, order::what(Rank::Burial, burial));
        return Some(order::keep(of, burial));
    }
    let holder = burial.holder();
    if holder.is_some() && !task.is_dead(holder) {
        return None;
    }
    Some(lock_burial(task, lane))
}

/// Takes the burial lock of a dead lane. If its holder died, that lane is repaired first, and what it did for
/// this lane is done again.
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock_burial<'r>(task: &Task<'r>, lane: LaneId) -> LockGuard<'r> {
    let burial = &task.region.lane(lane).burial;
    let of = order::of(&task.lane.holding);
    order::wait(of, order::what(Rank::Burial, burial));
    burial.lock(task.lane_id, &Gravedigger { task, grave: lane });
    order::keep(of, burial)
}

/// Releases the burial locks that the dead `lane`, which has been stripped, holds. Whoever wants to bury one
/// of those lanes begins anew.
pub(crate) fn leave_graves(task: &Task, lane: LaneId) {
    // Relaxed: what the dead did came before its death.
    let lanes = 1..task.region.header().lane_limit.load(Ordering::Relaxed);
    let burials = lanes.map(|index| &task.region.lane(LaneId(index)).burial);
    burials.filter(|burial| burial.holder() == lane).for_each(|burial| burial.unlock_for(lane));
}

struct Gravedigger<'t, 'r> {
    task: &'t Task<'r>,
    grave: LaneId,
}

impl Undertaker for Gravedigger<'_, '_> {
    fn lanes(&self) -> &dyn Lanes {
        self.task
    }

    fn replay(&self, lane: LaneId) {
        // A lane may die while it buries its own former owner, and is then this very lane.
        if (lane.0 ^ self.grave.0) << (u32::BITS - LANE_BITS) != 0 {
            repair(self.task, lane);
        }
    }

    fn repair(&self, _lane: LaneId) {}
}

/// Replays the intent of a dead lane. The caller must hold the lane's `burial`.
pub(crate) fn replay(task: &Task, lane: LaneId) {
    mount_claim::settle(task.region);
    let intent = &task.region.lane(lane).intent;
    // PAIRS: the release stores in `intent::write` and of a dropped `Intent`.
    match intent.op.load(Ordering::Acquire) {
        op::CHANGE | op::PLAIN_CHANGE => change::replay(task, lane),
        op::SPLIT => hash::replay_split(task, lane),
        op::BLOB => blob::replay(task, lane),
        op::OWNERS => ownership::replay(task, lane),
        op::TIMES => stamps::replay(task, lane),
        op::SHARE => membership::replay(task, lane),
        _ => intent.op.store(op::NONE, Ordering::Release),
    }
}

impl Undertaker for Task<'_> {
    fn lanes(&self) -> &dyn Lanes {
        self
    }

    fn replay(&self, lane: LaneId) {
        repair(self, lane);
    }

    fn repair(&self, _lane: LaneId) {
        // What these locks guard changes in single steps, or under an intent.
    }
}
