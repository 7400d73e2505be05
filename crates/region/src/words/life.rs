//! [`Life`]: the one word of a process slot that describes its state.
//!
//! State, generation and the lane responsible for the slot change together, by compare-and-swap. A process
//! that acts on a verdict ("dead") must swap the very word that the verdict was based on. It fails if
//! anything has happened to the slot since.
//!
//! | state | lane | meaning |
//! |---|---|---|
//! | free | none | any process may claim it |
//! | born | the claimer's, or none | claimed for a child that has not taken its record lock yet, or cannot before its exec |
//! | claimed | none | a process claims it for itself, and holds the record lock on its claim byte |
//! | live | how often it was live before, as a number | its process holds the record lock on its byte |
//! | dying | the reaper's, or none | being emptied, by its own process or a reaper, or left to the next reaper |
//!
//! The generation is incremented when the slot becomes free. A slot that is live, born and live again has
//! another word than before, so whoever found it unlocked in between does not take it for dead.

use crate::ids::LaneId;
use crate::sync::{AtomicU64, Ordering};

/// State of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// Unused.
    Free = 0,
    /// Claimed for a child that does not run yet.
    Born = 1,
    /// In use by a live process.
    Live = 2,
    /// Being emptied.
    Dying = 3,
    /// Claimed by a process for itself, which has not taken its record lock yet.
    Claimed = 4,
}

const STATE_BITS: u32 = 3;
const GENERATION_MASK: u32 = u32::MAX >> STATE_BITS;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life(u64);

impl Life {
    /// The word for a state, a generation and a lane.
    pub const fn new(state: SlotState, generation: u32, lane: LaneId) -> Self {
        let low = (generation & GENERATION_MASK) << STATE_BITS | state as u32;
        Life((lane.0 as u64) << 32 | low as u64)
    }

    /// The slot's state.
    pub const fn state(self) -> SlotState {
        match self.0 & ((1 << STATE_BITS) - 1) {
            0 => SlotState::Free,
            1 => SlotState::Born,
            2 => SlotState::Live,
            4 => SlotState::Claimed,
            _ => SlotState::Dying,
        }
    }

    /// The slot's generation.
    pub const fn generation(self) -> u32 {
        self.0 as u32 >> STATE_BITS
    }

    /// The claimer's lane of a slot that is born; the reaper's lane of one that is dying.
    pub const fn lane(self) -> LaneId {
        LaneId((self.0 >> 32) as u32)
    }

    /// The same generation in another state.
    pub(crate) const fn becoming(self, state: SlotState, lane: LaneId) -> Self {
        Life::new(state, self.generation(), lane)
    }

    /// The next generation, free.
    pub const fn freed(self) -> Self {
        Life::new(SlotState::Free, self.generation().wrapping_add(1), LaneId::NONE)
    }
}

/// The atomic word.
#[repr(transparent)]
pub struct LifeWord(AtomicU64);

impl LifeWord {
    /// A free slot of generation 0.
    pub fn new() -> Self {
        LifeWord(AtomicU64::new(0))
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> Life {
        // PAIRS: the release in `change`. What was written into the slot before is visible.
        Life(self.0.load(Ordering::Acquire))
    }

    /// Changes the word from `from` to `to`; returns whether it did.
    #[inline]
    pub fn change(&self, from: Life, to: Life) -> bool {
        // PAIRS: `get`, and the acquire of the next change.
        self.0.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

impl Default for LifeWord {
    fn default() -> Self {
        LifeWord::new()
    }
}
