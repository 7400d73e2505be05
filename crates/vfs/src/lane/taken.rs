//! Slots that a lane took but did not link in.

use lp_region::depot;
use lp_region::lane::Lane;
use lp_region::slab::Slot;
use lp_region::sync::Ordering;

use crate::caller::task::Task;

/// Returns the slot of a slab that the lane had taken and not linked in to the lane's cache. Replays settle
/// what they link in or finish. The caller must be burying the lane.
pub(crate) fn give_back<T: Slot>(task: &Task, record: &Lane) {
    task.region.settle_slab::<T>(record);
    let taken = &record.taken[T::SLAB];
    let index = taken.load(Ordering::Acquire);
    if index != 0 && !depot::is_cached::<T>(record, index) {
        task.region.give::<T>(record, T::id(index));
    }
    taken.store(0, Ordering::Release);
}
