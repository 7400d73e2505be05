//! [`Standing`]: where a mount stands, read from its record; and the region as [`crate::mount_change`] sees
//! it.

use crate::ids::{DirentId, InodeRef, LaneId, MountId};
use crate::mount::State;
use crate::mount_change::Mounts;
use crate::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Where a mount stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The mount it stands in; none for a mount of the run's command line.
    pub parent: MountId,
    /// What it covers.
    pub point: InodeRef,
    /// The entry that names what it covers; none for a root.
    pub dirent: DirentId,
}

impl Region<'_> {
    /// Where a mount of this state stands.
    pub fn standing(self, mount: MountId, state: State) -> Standing {
        let record = self.mount(if state.at().is_some() { state.at() } else { mount });
        // Relaxed throughout: published with the state.
        Standing {
            parent: MountId(record.parent.load(Ordering::Relaxed)),
            point: InodeRef::from_word(record.point.load(Ordering::Relaxed)),
            dirent: DirentId(record.point_dirent.load(Ordering::Relaxed)),
        }
    }
}

impl Mounts for Region<'_> {
    fn turn(&self) -> &AtomicU64 {
        &self.header().mount_turn
    }

    fn plan(&self, lane: LaneId) -> &[AtomicU64] {
        self.mount_plan(lane)
    }

    fn state(&self, mount: MountId) -> &AtomicU32 {
        &self.mount(mount).state
    }

    fn groups(&self, mount: MountId) -> &AtomicU64 {
        &self.mount(mount).groups
    }
}
