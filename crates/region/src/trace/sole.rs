//! Which lane of a traced run writes alone: its entries need no time of their own, and reading the
//! processor's counter costs more than a call.
//!
//! The tracer names a lane once it has seen no other's entries. Any other lane that records a call takes the
//! name away first. A lane writes the time before an entry unless the name is its own and has been since the
//! last time that it wrote; the tracer counts an entry without a time as of the last.
//!
//! A call that follows another lane's is never shown before it. Suppose that B records `b`, and A after that
//! records `a`, and knows of `b` (the program synchronises them: what B has written before is seen by A).
//! - B found a name and took it away, or found none. Then A finds no name at `a`, unless the tracer has put
//!   one there since, and writes the time, which is later than that of `b`.
//! - If the tracer has put A's name there since, it did so after B's last look at the name, because that look
//!   found none. B had read its time before the look, and A reads its own after it found the new name, which
//!   differs from every other that the word has held: so again A's time is later.

use core::arch::asm;
use core::arch::x86_64::{_mm_lfence, _rdtsc};

use crate::sync::{AtomicU64, Ordering};

/// No lane's name.
const NOBODY: u64 = u64::MAX;

/// The name of the lane that writes alone, and in the upper half how often there was one; or no name.
#[repr(transparent)]
pub struct Sole(AtomicU64);

impl Sole {
    /// Whether the name is the one that the calling lane found when it last wrote the time.
    #[inline(always)]
    pub(super) fn is(&self, timed: &AtomicU64) -> bool {
        // Relaxed, both: what orders the calls of two lanes orders these as well; the second is the lane's
        // own.
        self.0.load(Ordering::Relaxed) == timed.load(Ordering::Relaxed)
    }

    /// Takes the name away.
    pub(super) fn clear(&self) {
        self.0.store(NOBODY, Ordering::Relaxed); // Relaxed: as in `is`.
    }

    /// Names a lane if none is named, for the `time`th time. For the tracer.
    pub fn appoint(&self, lane: usize, time: u32) {
        let name = u64::from(time) << 32 | lane as u64;
        // Relaxed, all: nothing is published by it. A failure means that there is a name.
        if self.0.load(Ordering::Relaxed) != NOBODY {
            return; // The line stays with the lanes that read it.
        }
        let _ = self.0.compare_exchange(NOBODY, name, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The time for an entry of a lane, whose `timed` says from then on whether it needs one.
    pub(super) fn time(&self, lane: usize, timed: &AtomicU64) -> u64 {
        loop {
            let name = self.0.load(Ordering::Relaxed); // Relaxed: see `is`, and what follows.
            if name != NOBODY && name as u32 as usize == lane {
                timed.store(name, Ordering::Relaxed); // Relaxed: the lane's own.
                // SAFETY: it has no effect but that the counter is read after the load.
                unsafe { _mm_lfence() };
                return counter();
            }
            if name != NOBODY {
                self.clear();
            }
            let time = counter();
            if self.after(time).load(Ordering::Relaxed) == NOBODY {
                return time;
            }
        }
    }

    /// The word, by an address that the processor does not know before it has read `time`.
    fn after(&self, time: u64) -> &AtomicU64 {
        let zero: usize;
        // SAFETY: computes a zero of which the processor does not know that it is one.
        unsafe { asm!("and {0}, 0", inout(reg) time as usize => zero, options(pure, nomem, nostack)) };
        // SAFETY: the word itself.
        unsafe { &*(&raw const self.0).byte_add(zero) }
    }
}

fn counter() -> u64 {
    // SAFETY: only reads the processor's counter.
    unsafe { _rdtsc() }
}
