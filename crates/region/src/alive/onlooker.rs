//! [`Onlooker`]: what a lock needs to know about the region's lanes, from the viewpoint of one process.

use crate::ids::{LaneId, ProcessId};
use crate::lock::{Lanes, OwnerLock};
use crate::region::Region;
use crate::sync::{AtomicU32, Ordering};

/// The region's lanes as seen by one process.
pub struct Onlooker<'r> {
    /// The region.
    pub region: Region<'r>,
    /// The process, which is alive.
    pub process: ProcessId,
}

impl Lanes for Onlooker<'_> {
    fn is_dead(&self, lane: LaneId) -> bool {
        self.region.lane_is_dead(lane, self.process)
    }

    fn mark(&self, lane: LaneId) -> &AtomicU32 {
        &self.region.lane(lane).holding
    }

    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>) {
        let name = lock.map_or(0, |lock| self.region.offset_of(lock));
        // Relaxed: ordered by the barriers of the lock.
        self.region.lane(me).waits_for.store(name, Ordering::Relaxed);
    }

    fn is_awaited(&self, lock: &OwnerLock) -> bool {
        let name = self.region.offset_of(lock);
        // Relaxed: as above.
        self.region.lanes().any(|lane| self.region.lane(lane).waits_for.load(Ordering::Relaxed) == name)
    }
}
