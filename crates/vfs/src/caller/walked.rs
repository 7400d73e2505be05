//! The mounts that a lane's walks go through, whose records are not used again meanwhile
//! ([`lp_region::lane::Lane::walked`]).

use lp_region::mount::State;
use lp_region::sync::{Ordering, light_barrier};
use lp_region::{LaneId, MountId, Region};

use crate::caller::task::Task;

/// Keeps the record of `mount` from being used again while a walk goes on: false if `by`, which led there, is
/// no longer in `state`.
pub(crate) fn keep(task: &Task<'_>, walk: usize, mount: MountId, by: MountId, state: State) -> bool {
    task.lane.walked[walk].store(mount.0, Ordering::Relaxed); // Relaxed: ordered by the barriers.
    // PAIRS: the heavy barrier in `Tree::is_walked`.
    light_barrier();
    task.region.mount(by).state() == state
}

/// A lane is in no call: it is on its way through no mount.
pub(crate) fn forget(region: Region<'_>, lane: LaneId) {
    for walked in &region.lane(lane).walked {
        walked.store(0, Ordering::Release); // PAIRS: the acquire load in `Tree::is_walked`.
    }
}
