//! [`List`]: mounts in an order.

use lp_region::MountId;
use lp_region::layout::MOUNTS;

/// Mounts in an order; each at most once.
#[derive(Clone, Copy)]
pub(crate) struct List {
    mounts: [u8; MOUNTS],
    count: usize,
}

impl Default for List {
    fn default() -> Self {
        List { mounts: [0; MOUNTS], count: 0 }
    }
}

impl List {
    /// Adds a mount at the end.
    pub(crate) fn push(&mut self, id: MountId) {
        if let Some(place) = self.mounts.get_mut(self.count) {
            *place = id.0 as u8;
            self.count += 1;
        }
    }

    /// Number of mounts.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The mount at a position; none beyond the end.
    pub(crate) fn at(&self, index: usize) -> MountId {
        MountId(self.mounts.get(index).copied().unwrap_or(0).into())
    }

    /// Where a mount is in the list.
    pub(crate) fn position(&self, id: MountId) -> Option<usize> {
        self.iter().position(|other| other == id)
    }

    /// The mounts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = MountId> + '_ {
        self.mounts.iter().take(self.count).map(|id| MountId(u32::from(*id)))
    }
}
