//! Directories on their way to another parent, so that two that move at once never come to lie below each
//! other.
//!
//! A lane marks the directory that it moves, passes a full fence, and climbs from the directory that it moves
//! it to up to the root. Meeting a directory marked by itself, it would move that below itself. Meeting one
//! marked by another lane, it waits until that move is over and starts again. Otherwise it may change the
//! parent; the mark stays until that is done.
//!
//! Why that is enough, although a climb looks at one directory at a time while others move: call *promised*
//! the moves that have climbed and are still marked, and take the tree's edges together with an edge for each
//! promised move. Claim: when a move k is promised, no path of such edges leads from its new parent to a
//! directory j whose mark was set before k's climb and still stands, k's own included; so no promise closes a
//! ring. Suppose k were the first to break this. Follow the climb along the path. If they agree to the end,
//! the climb met j's mark. Else they part at a directory that was unmarked when the climb looked, so its move
//! began after k's climb, and after j's mark; it was promised before k, so the claim holds for it: the path
//! from its new parent to j came later, by a promise whose own climb began before j was marked. The directory
//! of that promise was marked before the former move's climb began, so by the claim the path from there to
//! that directory came later still, but before that promise; and so on without end. But the moves are
//! finitely many.
//!
//! Linearisation: the store of the parent. ABA: a mark names the lane's generation, and a burial takes the
//! marks of its lane away. Progress: blocking between a move and those that go below what it moves; see
//! `lp_vfs::tree` for who gives way.

use crate::ids::{InodeId, LaneId};
use crate::sync::{AtomicU32, Ordering, full_fence};

/// Directories above one another before a damaged region is suspected.
const DEPTH: u32 = 1 << 20;

/// The lane that moves a directory; 0 none.
#[repr(transparent)]
pub struct Moving(AtomicU32);

impl Moving {
    /// No lane.
    pub fn new() -> Self {
        Moving(AtomicU32::new(0))
    }

    /// Marks the directory as being moved by `me`. The caller holds the lock of the directory's parent, so no
    /// other living lane has it marked.
    pub fn mark(&self, me: LaneId) {
        self.0.store(me.0, Ordering::Release); // Ordered before the climb by its fence.
    }

    /// Takes the mark away again: the directory has its new parent, or keeps the old one.
    pub fn clear(&self) {
        // PAIRS: the acquire load in `mover`: who finds it unmarked sees the new parent.
        self.0.store(0, Ordering::Release);
    }

    /// Takes away the mark of a dead lane, whose change has been carried out.
    pub fn forget(&self, dead: LaneId) {
        // PAIRS: as in `clear`. If it fails, somebody has forgotten it already.
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

/// What a climb has to know of the directories.
pub trait Directories {
    /// The lane that moves `dir`.
    fn mover(&self, dir: InodeId) -> LaneId;
    /// The parent of `dir`: itself or none for a root.
    fn parent(&self, dir: InodeId) -> InodeId;
}

/// What a climb came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Climb {
    /// To a root.
    Free,
    /// To a directory that the climber itself moves.
    Own,
    /// To a directory that another lane moves.
    Met(InodeId, LaneId),
}

/// Climbs from `from` to the root. The caller, `me`, has marked what it moves.
pub fn climb(tree: &impl Directories, from: InodeId, me: LaneId) -> Climb {
    // PAIRS: with itself. Of two that mark and climb, the one whose fence comes second sees the other's mark.
    full_fence();
    let mut at = from;
    for _ in 0..DEPTH {
        // Before the parent: of a move that is over the new parent is seen.
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

/// Whether directory `above` is above `below`, as far as a climb past others' moves can tell.
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
