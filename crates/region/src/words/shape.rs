//! [`Shape`]: a count of changes to where paths lead. Any number of lanes may make such changes at once.
//!
//! The count is even while no change is under way. A lane marks itself [`UNDER_WAY`], makes the count odd or,
//! if it is odd already, a different odd value, and changes the tree. Afterwards it marks itself
//! [`SETTLING`], and a lane that finds no lane under way makes the count even. A lane that was alone knows
//! this because the count has not changed. Otherwise it changes the count first and scans all lanes then: of
//! two that settle, the one whose change of the count comes second sees the other's mark. A lane that begins
//! meanwhile changes the count too, so a scan that missed its mark has no effect.
//!
//! A stopped lane keeps the count odd, and no lane waits for it. A dead lane keeps it odd until its burial
//! settles in its place, which may be done twice. Linearisation of a reader: its load of the count. ABA: 2^31
//! changes between a reader's two loads. Progress: lock-free for writers, wait-free for readers. The readers'
//! side is [`crate::seq`]'s.

use crate::sync::{AtomicU32, Ordering, acquire_fence, release_fence};

/// A lane's mark while it changes where paths lead.
pub const UNDER_WAY: u32 = 1;
/// A lane's mark once its change is done and the count may have to become even.
pub const SETTLING: u32 = 2;

/// The count.
#[repr(transparent)]
pub struct Shape(AtomicU32);

/// A change in progress: the count that it set.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    count: u32,
    /// No other lane was under way.
    alone: bool,
}

impl Shape {
    /// A count of zero.
    pub fn new() -> Self {
        Shape(AtomicU32::new(0))
    }

    /// Begins a change. `mark` is the lane's own.
    #[must_use]
    pub fn begin(&self, mark: &AtomicU32) -> Begun {
        mark.store(UNDER_WAY, Ordering::Relaxed); // Relaxed: published by the exchange.
        let mut seen = self.0.load(Ordering::Relaxed); // Relaxed: the exchange decides.
        loop {
            let count = seen.wrapping_add(1 + (seen & 1));
            // PAIRS: with itself and the additions in `settle`. A lane that changes the count later sees the
            // mark.
            match self.0.compare_exchange(seen, count, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    // PAIRS: the fence in `retry`. A reader that sees a later store of this change sees the
                    // odd count.
                    release_fence();
                    return Begun { count, alone: seen & 1 == 0 };
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Ends a change. `is_under_way` says whether any lane is marked [`UNDER_WAY`].
    pub fn end(&self, mark: &AtomicU32, begun: Begun, is_under_way: impl Fn() -> bool) {
        // PAIRS: published by the exchange below, or the addition in `settle`.
        mark.store(SETTLING, Ordering::Release);
        let even = begun.count.wrapping_add(1);
        // PAIRS: the acquire load in `read`. A reader that sees the even count sees the change.
        let ended = begun.alone
            && self.0.compare_exchange(begun.count, even, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if ended {
            mark.store(0, Ordering::Release);
        } else {
            self.settle(mark, is_under_way);
        }
    }

    /// Makes the count even if no lane is under way, and clears `mark`, which is [`SETTLING`]. Also called
    /// for a dead lane whose change has been replayed, and again if that caller died.
    #[cold]
    pub fn settle(&self, mark: &AtomicU32, is_under_way: impl Fn() -> bool) {
        // PAIRS: the exchange in `begin` and other additions. Marks that were set before an earlier change
        // are visible below.
        let seen = self.0.fetch_add(2, Ordering::AcqRel).wrapping_add(2);
        if seen & 1 != 0 && !is_under_way() {
            // If it fails, the lane that changed the count settles in turn. PAIRS: as in `end`.
            let _ = self.0.compare_exchange(seen, seen.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
        }
        mark.store(0, Ordering::Release);
    }

    /// The count before a read of the tree; odd while a change is under way.
    #[inline]
    pub fn read(&self) -> u32 {
        // PAIRS: the exchanges in `end` and `settle`.
        self.0.load(Ordering::Acquire)
    }

    /// Whether what was read of the tree since `before` may mix two shapes.
    #[inline]
    pub fn retry(&self, before: u32) -> bool {
        before & 1 != 0 || self.has_changed(before)
    }

    /// Whether a change has begun or ended since the count was `before`.
    #[inline]
    pub fn has_changed(&self, before: u32) -> bool {
        // PAIRS: the fence in `begin`. If a load above saw a store of a change, the count loaded below is a
        // new one.
        acquire_fence();
        self.0.load(Ordering::Relaxed) != before // Relaxed: ordered by the fence above.
    }

    /// Whether no change has begun since the count was `before`, an even value, so that what was cached then
    /// still holds. False for a caller that has seen anything of a change.
    #[inline(always)]
    pub fn stands_at(&self, before: u32) -> bool {
        // PAIRS: the fence in `begin`, through whatever the change published.
        self.read() == before
    }

    /// Makes the count even. Nobody is at work.
    pub fn reset(&self) {
        let count = self.0.load(Ordering::Relaxed); // Relaxed, here and below: nobody is at work.
        self.0.store(count.wrapping_add(count & 1), Ordering::Relaxed);
    }
}

impl Default for Shape {
    fn default() -> Self {
        Shape::new()
    }
}
