//! The mounts that a lane's walks go through, whose records are not used again meanwhile
//! ([`lp_region::lane::Lane::walked`]).

use lp_region::mount::{State, mount_flags};
use lp_region::sync::{Ordering, light_barrier};
use lp_region::{LaneId, MountId, Region, mount_leave};

use crate::caller::task::Task;

/// Keeps the record of `mount` from being used again while a walk goes on: false if `by`, which led there, is
/// no longer in `state`.
pub(crate) fn keep(task: &Task<'_>, walk: usize, mount: MountId, by: MountId, state: State) -> bool {
    task.lane.walked[walk].store(mount.0, Ordering::Relaxed); // Relaxed: ordered by the barriers.
    task.entered.set(mount.0);
    let flags = &task.region.mount(mount).flags;
    // Relaxed, both: a mark of its own.
    if flags.load(Ordering::Relaxed) & mount_flags::EXPIRING != 0 && !task.expires.get() {
        flags.fetch_and(!mount_flags::EXPIRING, Ordering::Relaxed);
    }
    // PAIRS: the heavy barrier in `Tree::is_walked`.
    light_barrier();
    task.region.mount(by).state() == state
}

/// Whether a walk went from one mount into another, so that the mount may have been unmounted since:
/// [`is_gone`] tells.
#[inline(always)]
pub(crate) fn has_entered(task: &Task<'_>) -> bool {
    task.entered.get() != 0
}

/// Whether a mount that the last walk went into was unmounted before the caller, who is visible as its user
/// by now, used it: walk again.
#[cold]
pub(crate) fn is_gone(task: &Task<'_>, mount: MountId) -> bool {
    let record = task.region.mount(mount);
    let was_entered = task.entered.replace(0) == mount.0;
    was_entered && mount_leave::is_gone(&task.region, &record.flags, &record.state)
}

/// [`is_gone`] for a caller that is visible as a writer in the mount, and may have to ask again as a user of
/// what it makes there.
#[cold]
pub(crate) fn was_left(task: &Task<'_>, mount: MountId) -> bool {
    let record = task.region.mount(mount);
    let gone =
        task.entered.get() == mount.0 && mount_leave::is_gone(&task.region, &record.flags, &record.state);
    if gone {
        // The walk that follows enters what it goes through; one that starts in the mount stays there.
        task.entered.set(0);
    }
    gone
}

/// A lane is in no call: it is on its way through no mount.
pub(crate) fn forget(region: Region<'_>, lane: LaneId) {
    for walked in &region.lane(lane).walked {
        walked.store(0, Ordering::Release); // PAIRS: the acquire load in `Tree::is_walked`.
    }
}
