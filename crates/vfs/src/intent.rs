//! Intents: what a lane wrote down before a change of more than one word, and how anybody finishes it.

use lp_region::LaneId;
use lp_region::lane::Lane;
use lp_region::layout::LANE_BITS;
use lp_region::lock::{Lanes, Undertaker};
use lp_region::order::{self, Rank};
use lp_region::sync::Ordering;

use crate::task::Task;
use crate::{blob, change, chown, hash, lock, page, utimens};

/// Operations that leave an intent, [`lp_region::lane::Intent::op`].
pub mod op {
    /// Nothing under way.
    pub const NONE: u64 = 0;
    /// A change of names; the words are [`crate::change::Change`]'s.
    pub const CHANGE: u64 = 1;
    /// A change of names that takes the first of those words only.
    pub const PLAIN_CHANGE: u64 = 4;
    /// A split of a hash bucket: the table's state says which.
    pub const SPLIT: u64 = 2;
    /// A change of an inode's blob; the words are [`crate::blob::swap`]'s.
    pub const BLOB: u64 = 3;
    /// A change of an inode's owners; the words are [`crate::chown`]'s.
    pub const OWNERS: u64 = 5;
    /// A change of an inode's times; the words are [`crate::utimens`]'s.
    pub const TIMES: u64 = 6;
    /// The last of them.
    pub const LAST: u64 = TIMES;
}

/// Writes down what this lane is about to do.
#[inline]
pub fn write<const N: usize>(task: &Task, op: u64, words: &[u64; N]) {
    let intent = &task.lane.intent;
    for (to, from) in intent.words.iter().zip(words) {
        to.store(*from, Ordering::Relaxed); // Relaxed: published by `op`.
    }
    // PAIRS: the acquire load in `replay`.
    intent.op.store(op, Ordering::Release);
}

/// Says that it is done.
#[inline]
pub fn clear(task: &Task) {
    // Release: every step is seen by whoever sees that none is left.
    task.lane.intent.op.store(op::NONE, Ordering::Release);
}

/// Finishes or undoes what the dead `lane` had begun, once: whoever comes second finds it done.
///
/// The caller wants a lock that the lane holds, or is burying the lane. All locks that the dead lane holds are still its
/// own: nobody takes one over before this is done, so a replay may change what they guard.
#[cold]
pub fn repair(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    // A replay that takes over another lock of the same dead lane comes back here.
    if is_buried(task, lane) || record.burial.holder() == task.lane_id {
        return;
    }
    lock_burial(task, lane);
    if !is_buried(task, lane) {
        // Pages first: a replay may free the same pages again, and then they may be somebody else's.
        page::repair(task, lane);
        replay(task, lane);
        lock::settle_in_hand(task, record);
    }
    unlock_burial(task, record);
}

/// Whether a dead lane was cleaned up already: it may have a new owner.
pub(crate) fn is_buried(task: &Task, lane: LaneId) -> bool {
    task.region.lane(lane).generation.load(Ordering::Acquire) != lane.0 >> LANE_BITS
}

/// Takes the lock of a dead lane's burial as [`lock_burial`] does, unless a living thread has it; whether it did.
pub(crate) fn lock_burial_unless_held(task: &Task, lane: LaneId) -> bool {
    let burial = &task.region.lane(lane).burial;
    if burial.try_lock(task.lane_id) {
        order::took(order::of(&task.lane.holding), order::what(Rank::Burial, burial));
        return true;
    }
    let holder = burial.holder();
    if holder.is_some() && !task.is_dead(holder) {
        return false;
    }
    lock_burial(task, lane);
    true
}

/// Takes the lock of a dead lane's burial. If somebody died at it, that one is repaired first, and what it did for this lane
/// is done again.
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock_burial(task: &Task, lane: LaneId) {
    let burial = &task.region.lane(lane).burial;
    order::wait(order::of(&task.lane.holding), order::what(Rank::Burial, burial));
    burial.lock(task.lane_id, &Gravedigger { task, grave: lane });
}

/// Gives the lock of a burial back.
pub(crate) fn unlock_burial(task: &Task, record: &Lane) {
    record.burial.unlock();
    order::gave(order::of(&task.lane.holding), &record.burial);
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
        // A lane may die looking after its own former owner, and is then this very lane.
        if (lane.0 ^ self.grave.0) << (u32::BITS - LANE_BITS) != 0 {
            repair(self.task, lane);
        }
    }

    fn repair(&self, _lane: LaneId) {}
}

/// Replays the intent of a dead lane. The caller holds the lane's `burial`.
pub(crate) fn replay(task: &Task, lane: LaneId) {
    let intent = &task.region.lane(lane).intent;
    // PAIRS: the release store in `write`.
    match intent.op.load(Ordering::Acquire) {
        op::CHANGE | op::PLAIN_CHANGE => change::replay(task, lane),
        op::SPLIT => hash::replay_split(task, lane),
        op::BLOB => blob::replay(task, lane),
        op::OWNERS => chown::replay(task, lane),
        op::TIMES => utimens::replay(task, lane),
        _ => intent.op.store(op::NONE, Ordering::Release),
    }
}
