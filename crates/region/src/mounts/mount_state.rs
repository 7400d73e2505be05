//! [`State`]: whether a mount's record counts, where the mount stands, and how often that has changed.

use crate::ids::MountId;
use crate::layout::MOUNTS;

/// Nobody's record, or one that its maker is filling in.
pub const FREE: u32 = 0;
/// Part of its run's tree.
pub const ATTACHED: u32 = 1;
/// Taken out of the tree (umount2(2), `MNT_DETACH`); open files and working directories may be in it.
pub const DETACHED: u32 = 2;
/// No mount: it holds the place of one that was moved.
pub const PLACE: u32 = 3;

/// Value of `Mount::state`: a kind in 2 bits, the record with the mount's place in 8 (0: its own), and a
/// count of the exchanges of this word in 22, so that no value comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State(pub u32);

impl State {
    /// One of the kinds above.
    #[inline]
    pub const fn kind(self) -> u32 {
        self.0 & 3
    }

    /// Whether the record is a mount's, in the tree or out of it.
    #[inline]
    pub const fn is_mount(self) -> bool {
        matches!(self.kind(), ATTACHED | DETACHED)
    }

    /// The record that has the place; none if it is the mount's own.
    #[inline]
    pub const fn at(self) -> MountId {
        MountId(self.0 >> 2 & (MOUNTS as u32 - 1))
    }

    /// The state that follows.
    pub const fn next(self, kind: u32, at: MountId) -> State {
        State(kind | at.0 << 2 | (self.0 >> 10).wrapping_add(1) << 10)
    }
}
