//! Grace periods: when nobody else uses what a thread has taken out of the word in which others found it.
//!
//! Users pin what they find ([`crate::marks`]), but a pin need not be visible at once. A thread that has
//! taken names out of words begins a period, a number ([`begin`]). The period is over for a lane that has
//! noted this number or a later one ([`Quiescent::note`]): it finds the names gone from there on, and the
//! pins that it set before are visible with the note. Once it is over for all lanes, their pins tell what is
//! still in use.
//!
//! A lane that is in no call notes nothing. It is asked to ([`Quiescent::ask`]), and after each pin it looks
//! whether it was ([`Quiescent::is_here`]). If so, it comes back, by a full fence and a note, and looks again
//! for what it has found ([`Quiescent::come_back`]). If it is not back after a heavy barrier, it is away
//! ([`Quiescent::confirm`]): the pins that it had set before are visible, and it comes back before it uses
//! anything. So a period is over for a lane that is away.
//!
//! Linearisation points: the load of the number in a note; the exchange that brings a lane back. ABA: the
//! word of a lane counts how often it was asked, so only who asked last before its barrier can confirm.
//! Progress: wait-free for users; a period that a lane does not note ends with a barrier. Source: Hart et
//! al., "Performance of memory reclamation for lockless synchronization" (2007), for quiescent states; the
//! lanes that are away are those of user-space RCU, put there by others.

use crate::sync::{AtomicU32, AtomicU64, Ordering, full_fence};

/// What the low bits of [`Quiescent::state`] say.
const STATE: u32 = 3;
const HERE: u32 = 0;
const ASKED: u32 = 1;
const AWAY: u32 = 2;
/// One in the count above them.
const TURN: u32 = 4;

/// What a lane tells of itself.
#[derive(Default)]
#[repr(C)]
pub struct Quiescent {
    /// The last period that it has noted.
    pub noted: AtomicU64,
    /// Whether it is in calls, was asked, or is away; above two bits, how often it was asked.
    pub state: AtomicU32,
}

/// Begins a period for the names that the caller has taken out. Returns its number.
#[inline]
pub fn begin(periods: &AtomicU64) -> u64 {
    // PAIRS: the acquire in `note`: the names are gone.
    periods.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
}

impl Quiescent {
    /// Notes the last period. Only by the lane itself.
    #[inline(always)]
    pub fn note(&self, periods: &AtomicU64) {
        // PAIRS: the exchange in `begin`; the acquire in `has_passed`: earlier pins are visible.
        self.noted.store(periods.load(Ordering::Acquire), Ordering::Release);
    }

    /// Whether the lane, which has just pinned something, may use it if it still finds it. If not, it must
    /// come back and look for it again.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STATE == HERE // Relaxed: ordered by the barriers.
    }

    /// Ends that the lane was asked, or away. Only by the lane itself.
    #[cold]
    pub fn come_back(&self, periods: &AtomicU64) {
        self.be_here();
        // PAIRS: the full fence of a thread that takes the lane for away, between the removal and that.
        full_fence();
        self.note(periods);
    }

    /// An exchange, so that the count stays that of all who asked: one of them may be about to confirm.
    fn be_here(&self) {
        let mut seen = self.state.load(Ordering::Relaxed); // Relaxed: the exchange looks again.
        while let Err(now) =
            self.state.compare_exchange(seen, seen & !STATE, Ordering::AcqRel, Ordering::Relaxed)
        {
            seen = now;
        }
    }

    /// Whether a period is over for the lane. The caller passed a full fence after it had begun the period.
    #[inline]
    pub fn has_passed(&self, period: u64) -> bool {
        // PAIRS: the releases in `note` and `confirm`: earlier pins are visible.
        self.noted.load(Ordering::Acquire) >= period || self.state.load(Ordering::Acquire) & STATE == AWAY
    }

    /// Asks the lane to note a period. Returns what [`Quiescent::confirm`] needs.
    pub fn ask(&self) -> u32 {
        let mut seen = self.state.load(Ordering::Relaxed); // Relaxed: the exchange looks again.
        loop {
            if seen & STATE != HERE {
                return seen;
            }
            let asked = seen.wrapping_add(TURN) | ASKED;
            // Relaxed: ordered by the heavy barrier.
            match self.state.compare_exchange(seen, asked, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return asked,
                Err(now) => seen = now,
            }
        }
    }

    /// The lane is away if it has not come back since [`Quiescent::ask`] returned `asked`. The caller has
    /// passed a heavy barrier meanwhile.
    pub fn confirm(&self, asked: u32) {
        if asked & STATE == ASKED {
            let away = asked & !STATE | AWAY;
            // PAIRS: the acquire in `has_passed`: who sees it sees the pins that the barrier made visible.
            let _ = self.state.compare_exchange(asked, away, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// For the lane's next owner. The lane has no owner, or is about to have none.
    pub fn reset(&self) {
        self.noted.store(0, Ordering::Relaxed); // Relaxed: published with the lane.
        self.be_here();
    }
}
