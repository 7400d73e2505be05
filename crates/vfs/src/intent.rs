//! Intents: what a lane wrote down before a change of more than one word, and how anybody finishes it.

use lp_region::LaneId;
use lp_region::sync::Ordering;

use crate::task::Task;

/// Operations that leave an intent, [`lp_region::lane::Intent::op`].
pub mod op {
    /// Nothing under way.
    pub const NONE: u64 = 0;
}

/// Finishes or undoes what the dead `lane` had begun. The caller holds a lock that the lane held.
#[cold]
pub fn repair(task: &Task, lane: LaneId) {
    let intent = &task.region.lane(lane).intent;
    // PAIRS: the release store that ends writing an intent down.
    if intent.op.load(Ordering::Acquire) != op::NONE {
        intent.op.store(op::NONE, Ordering::Release);
    }
}
