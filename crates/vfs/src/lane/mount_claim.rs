//! What a lane that died leaves of the mounts: a change that is under way, and records that it has claimed.

use lp_region::sync::Ordering;
use lp_region::{LaneId, Region, mount_change};

use crate::caller::task::Task;
use crate::caller::walked;

/// Finishes what a lane that died was changing of the mounts.
pub(crate) fn settle(region: Region<'_>) {
    let _ = mount_change::settle(&region);
}

/// Gives back what a dead lane has claimed or kept. The caller buries it, and has finished its change.
pub(crate) fn bury(task: &Task<'_>, lane: LaneId) {
    walked::forget(task.region, lane);
    for id in task.region.mounts() {
        let maker = &task.region.mount(id).maker;
        let _ = maker.compare_exchange(lane.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}
