//! Changes that threads make side by side, and those for which they stand aside.
//!
//! A thread that makes a small change stores a mark of its own, passes a light barrier and loads `closed`
//! ([`enter`]). Changes side by side are single exchanges. A thread that needs the others out of the way
//! holds a lock, sets `closed`, passes the heavy barrier and waits until no mark is set ([`close`],
//! [`is_inside`]). Store-load on both sides: either who enters sees `closed`, or who closes sees the mark.
//!
//! `closed` stays set afterwards: the next small changes take the lock, each counts it down ([`passed`]), and
//! the last one opens. A thread that keeps needing the others out of the way pays for one barrier in
//! [`LATER`] small changes.
//!
//! Linearisation points: the last load of `closed`; the load that finds the last mark cleared. Progress:
//! wait-free for who enters, otherwise blocking. Source: Dice, Kogan, "BRAVO: Biased Locking for
//! Reader-Writer Locks" (2019), with the fence moved to the rare side by membarrier(2).

use crate::marks;
use crate::sync::{AtomicU32, Ordering};

/// Small changes under the lock before the next is made beside others.
pub const LATER: u32 = 64;
/// All changes are made under the lock, for want of a barrier.
pub const NEVER: u32 = u32::MAX;
/// A mark that is set.
const INSIDE: u32 = 1;

/// Begins a change beside others, which ends with [`leave`]. False if it has to be made under the lock.
#[inline]
pub fn enter(mark: &AtomicU32, closed: &AtomicU32) -> bool {
    // Relaxed: a hint.
    if closed.load(Ordering::Relaxed) != 0 {
        return false;
    }
    // PAIRS: the release in `passed`: what was changed while it was closed is visible.
    let entered = marks::enter(mark, INSIDE, closed, u32::MAX) && closed.load(Ordering::Acquire) == 0;
    if !entered {
        marks::leave(mark);
    }
    entered
}

/// Ends a change beside others.
#[inline]
pub fn leave(mark: &AtomicU32) {
    marks::leave(mark);
}

/// Counts a small change under the lock, which the caller holds.
#[inline]
pub fn passed(closed: &AtomicU32) {
    let left = closed.load(Ordering::Relaxed); // Relaxed: changed under the lock.
    if left != 0 && left != NEVER {
        // PAIRS: the acquire in `enter`.
        closed.store(left - 1, Ordering::Release);
    }
}

/// Keeps others from entering. Returns whether some may be inside. The caller holds the lock. Without a
/// barrier it does not open again.
#[inline]
pub fn close(closed: &AtomicU32, later: u32) -> bool {
    let left = closed.load(Ordering::Relaxed); // Relaxed, here and below: changed under the lock.
    if left != 0 {
        if left != NEVER {
            closed.store(later, Ordering::Relaxed);
        }
        return false;
    }
    if !marks::shut(closed, later) {
        closed.store(NEVER, Ordering::Relaxed);
    }
    true
}

/// Whether a lane is making a change beside others.
#[inline]
pub fn is_inside(mark: &AtomicU32) -> bool {
    marks::inside(mark, INSIDE)
}
