//! Intents: what a lane wrote down before a change of more than one word, and how anybody finishes it.

use lp_region::LaneId;
use lp_region::layout::LANE_BITS;
use lp_region::sync::Ordering;

use crate::page;
use crate::task::Task;

/// Operations that leave an intent, [`lp_region::lane::Intent::op`].
pub mod op {
    /// Nothing under way.
    pub const NONE: u64 = 0;
}

/// Finishes or undoes what the dead `lane` had begun, once: whoever comes second finds it done.
///
/// The caller has taken over a lock that the lane held, or is burying the lane. Other locks that the dead lane holds
/// are still its own, or their next holder waits here before touching anything: a replay may change what they guard.
#[cold]
pub fn repair(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    // A replay that takes over another lock of the same dead lane comes back here.
    if record.burial.holder() == task.lane_id {
        return;
    }
    record.burial.lock(task.lane_id, task);
    // Buried meanwhile: the lane may have a new owner.
    if record.generation.load(Ordering::Acquire) == lane.0 >> LANE_BITS {
        replay(task, lane);
        page::repair(task, lane);
    }
    record.burial.unlock();
}

/// Replays the intent of a dead lane. The caller holds the lane's `burial`.
pub(crate) fn replay(task: &Task, lane: LaneId) {
    let intent = &task.region.lane(lane).intent;
    // PAIRS: the release store that ends writing an intent down.
    if intent.op.load(Ordering::Acquire) != op::NONE {
        intent.op.store(op::NONE, Ordering::Release);
    }
}
