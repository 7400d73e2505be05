//! Directories that move to another parent: prevents two concurrent moves from placing each below the other.
//!
//! A lane marks the directory that it moves, passes a full fence, and climbs from the new parent to the root.
//! If it meets a directory that it has marked itself, it would move that directory below itself. If it meets
//! one marked by another lane, it waits until that move is over and starts again. Otherwise it may change the
//! parent; the mark stays until that is done.
//!
//! Why this suffices, although a climb reads one directory at a time while others move: call *promised* the
//! moves that have climbed and are still marked, and add to the tree's edges one edge for each promised move.
//! Claim: when a move k is promised, no path of such edges leads from its new parent to a directory j whose
//! mark was set before k's climb and still stands, including k's own; so no promise closes a ring. Suppose k
//! were the first to break this. Follow the climb along the path. If they agree to the end, the climb met j's
//! mark. Otherwise they part at a directory that was unmarked when the climb read it, so its move began after
//! k's climb, and after j's mark. It was promised before k, so the claim holds for it: the path from its new
//! parent to j came later, by a promise whose own climb began before j was marked. The directory of that
//! promise was marked before the former move's climb began, so by the claim the path from there to that
//! directory came later still, but before that promise; and so on without end. But the moves are finitely
//! many.
//!
//! Linearisation: the store of the parent. ABA: a mark names the lane's generation, and a burial clears the
//! marks of its lane. Progress: blocking between a move and those that go below the directory it moves;
//! `lp_vfs::tree` decides which one gives way.

use crate::ids::{InodeId, LaneId};
use crate::sync::{AtomicU32, Ordering, full_fence};

/// Depth of a directory beyond which a region is considered damaged.
pub const DEPTH: u32 = 1 << 20;

/// The lane that moves a directory; 0 if none.
#[repr(transparent)]
pub struct Moving(AtomicU32);

impl Moving {
    /// No lane.
    pub fn new() -> Self {
        Moving(AtomicU32::new(0))
    }

    /// Marks the directory as being moved by `me`. The caller holds the lock of the directory's parent, so no
    /// other live lane has it marked.
    pub fn mark(&self, me: LaneId) {
        self.0.store(me.0, Ordering::Release); // Ordered before the climb by its fence.
    }

    /// Clears the mark: the directory has its new parent, or keeps the old one.
    pub fn clear(&self) {
        // PAIRS: the acquire load in `mover`. A climb that finds it unmarked sees the new parent.
        self.0.store(0, Ordering::Release);
    }

    /// Clears the mark of a dead lane whose change has been replayed.
    pub fn forget(&self, dead: LaneId) {
        // PAIRS: as in `clear`. If it fails, another lane has already cleared it.
        let _ = self.0.compare_exchange(dead.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The lane that moves it.
    #[inline]
    pub fn mover(&self) -> LaneId {
        // PAIRS: the release in `clear` and `forget`.
        LaneId(self.0.load(Ordering::Acquire))
    }
}

impl Default for Moving {
    fn default() -> Self {
        Moving::new()
    }
}

/// What a climb needs to know about directories.
pub trait Directories {
    /// The lane that moves `dir`.
    fn mover(&self, dir: InodeId) -> LaneId;
    /// The parent of `dir`: itself or none for a root.
    fn parent(&self, dir: InodeId) -> InodeId;
}

/// Result of a climb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Climb {
    /// Reached a root.
    Free,
    /// Met a directory that the climber itself moves.
    Own,
    /// Met a directory that another lane moves.
    Met(InodeId, LaneId),
}

/// Climbs from `from` to the root. The caller, `me`, has marked the directory that it moves.
pub fn climb(tree: &impl Directories, from: InodeId, me: LaneId) -> Climb {
    // PAIRS: with itself. Of two that mark and climb, the one whose fence comes second sees the other's mark.
    full_fence();
    let mut at = from;
    for _ in 0..DEPTH {
        // Loaded before the parent: if a move is over, the new parent is visible.
        let mover = tree.mover(at);
        if mover == me {
            return Climb::Own;
        }
        if mover.is_some() {
            return Climb::Met(at, mover);
        }
        let up = tree.parent(at);
        if up == at || up.is_none() {
            break;
        }
        at = up;
    }
    Climb::Free
}

/// Whether directory `above` is above `below`, as far as a climb past other moves can tell.
pub fn is_above(tree: &impl Directories, above: InodeId, below: InodeId) -> bool {
    let mut at = below;
    for _ in 0..DEPTH {
        let up = tree.parent(at);
        if up == at || up.is_none() {
            return false;
        }
        if up == above {
            return true;
        }
        at = up;
    }
    false
}
