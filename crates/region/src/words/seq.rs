//! Sequence count. A writer that holds the record's lock makes it odd, changes the record and makes it even.
//! A reader copies the record and checks that it saw one even value before and after.
//!
//! Linearisation point of a read: any moment between its two loads of the count. Readers write nothing.
//! Progress: running writers delay a reader, including one that the scheduler has preempted. After `SPINS`
//! tries and `PAUSES` sleeps a reader takes what it has read, field by field, as Linux would return it, so a
//! stopped writer blocks no reader. Source: Lameter, "Effective synchronization on Linux/NUMA systems"
//! (2005); Boehm, "Can seqlocks get along with programming language memory models?" (2012).

use crate::sync::{AtomicU32, Ordering, acquire_fence, pause, release_fence, spin};

/// Tries of a reader before it sleeps between them.
const SPINS: u32 = 2000;
/// Sleeps, of at least 50 us each, before a reader accepts unvalidated fields.
const PAUSES: u32 = 100;

/// The count.
#[repr(transparent)]
pub struct Seq(AtomicU32);

impl Seq {
    /// A count of zero.
    pub fn new() -> Self {
        Seq(AtomicU32::new(0))
    }

    /// Begins a change. The caller holds the lock that guards the record.
    #[inline]
    pub fn begin(&self) {
        let seq = self.0.load(Ordering::Relaxed); // Relaxed: only the lock's holder writes it.
        self.0.store(seq | 1, Ordering::Relaxed); // Relaxed: ordered by the fence below.
        // PAIRS: the fence in `retry`. A reader that sees a later store of this change sees the odd value.
        release_fence();
    }

    /// [`Seq::end`] of a change that contained no other, so that the count is odd: one instruction.
    #[inline]
    pub fn end_alone(&self) {
        let seq = self.0.load(Ordering::Relaxed); // Relaxed: only the lock's holder writes it.
        // PAIRS: as in `end`.
        self.0.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// Ends a change. The caller holds the lock that guards the record.
    #[inline]
    pub fn end(&self) {
        let seq = self.0.load(Ordering::Relaxed); // Relaxed: only the lock's holder writes it.
        // PAIRS: the acquire load in `read`. A reader that sees the even value sees the change.
        self.0.store((seq | 1).wrapping_add(1), Ordering::Release);
    }

    /// The value before a read; odd while a change is under way.
    #[inline]
    pub fn read(&self) -> u32 {
        // PAIRS: the release store in `end`.
        self.0.load(Ordering::Acquire)
    }

    /// Whether what was read since `before` may mix two states.
    #[inline]
    pub fn retry(&self, before: u32) -> bool {
        // PAIRS: the fence in `begin`. If a load above saw a store of a change, the count loaded below is odd
        // or new.
        acquire_fence();
        // One comparison: the count only grows, so it is not the even value before an odd one. Relaxed:
        // ordered by the fence above.
        self.0.load(Ordering::Relaxed) != before & !1
    }

    /// Whether no change has begun since the count was `before`, an even value, so that what was cached then
    /// still holds. False for a caller that has seen anything of a change.
    #[inline(always)]
    pub fn stands_at(&self, before: u32) -> bool {
        // PAIRS: the fence in `begin`, through whatever the change published.
        self.read() == before
    }

    /// Reads with `copy` until two even counts agree, or `SPINS` tries and `PAUSES` sleeps have passed.
    #[inline]
    pub fn snapshot<T>(&self, mut copy: impl FnMut() -> T) -> T {
        let before = self.read();
        let seen = copy();
        if !self.retry(before) {
            return seen;
        }
        self.snapshot_slow(&mut copy)
    }

    /// [`Seq::snapshot`] of what this count and another guard. Nested snapshots would try `SPINS` times
    /// `SPINS`.
    #[inline]
    pub fn snapshot_both<T>(&self, other: &Seq, mut copy: impl FnMut() -> T) -> T {
        let before = (self.read(), other.read());
        let seen = copy();
        if !self.retry(before.0) && !other.retry(before.1) {
            return seen;
        }
        self.snapshot_both_slow(other, &mut copy)
    }

    #[cold]
    fn snapshot_both_slow<T>(&self, other: &Seq, copy: &mut dyn FnMut() -> T) -> T {
        for _ in 0..SPINS {
            let before = (self.read(), other.read());
            let seen = copy();
            if !self.retry(before.0) && !other.retry(before.1) {
                return seen;
            }
            spin();
        }
        copy()
    }

    #[cold]
    fn snapshot_slow<T>(&self, copy: &mut dyn FnMut() -> T) -> T {
        for tried in 0..SPINS + PAUSES {
            let before = self.read();
            let seen = copy();
            if !self.retry(before) {
                return seen;
            }
            if tried < SPINS { spin() } else { pause() }
        }
        copy()
    }
}

impl Default for Seq {
    fn default() -> Self {
        Seq::new()
    }
}
