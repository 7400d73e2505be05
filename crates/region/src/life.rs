//! [`Life`]: the one word of a process slot that says what becomes of it.
//!
//! State, generation and the lane that answers for the slot change together, by compare-and-swap: whoever acts on a
//! verdict ("dead") acts on the very word that it was passed on, and fails if anything has happened to the slot since.
//!
//! | state | lane | means |
//! |---|---|---|
//! | free | none | anybody may claim it |
//! | born | the claimer's, or none | claimed for a child that has not taken its record lock yet, or cannot before its exec |
//! | live | none | its process holds the record lock on its byte |
//! | dying | the reaper's, or none | being emptied, by its own process as it exits or by a reaper |
//!
//! The generation grows when the slot becomes free.

use crate::ids::LaneId;
use crate::sync::{AtomicU64, Ordering};

/// What a slot is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody's.
    Free = 0,
    /// Claimed for a child to come.
    Born = 1,
    /// A process's.
    Live = 2,
    /// Being emptied.
    Dying = 3,
}

const STATE_BITS: u32 = 2;
const GENERATION_MASK: u32 = u32::MAX >> STATE_BITS;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life(u64);

impl Life {
    /// What it says: state, generation, lane.
    pub const fn new(state: State, generation: u32, lane: LaneId) -> Self {
        let low = (generation & GENERATION_MASK) << STATE_BITS | state as u32;
        Life((lane.0 as u64) << 32 | low as u64)
    }

    /// The slot's state.
    pub const fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Free,
            1 => State::Born,
            2 => State::Live,
            _ => State::Dying,
        }
    }

    /// The slot's generation.
    pub const fn generation(self) -> u32 {
        self.0 as u32 >> STATE_BITS
    }

    /// The claimer's lane of a slot that is born, the reaper's of one that is dying.
    pub const fn lane(self) -> LaneId {
        LaneId((self.0 >> 32) as u32)
    }

    /// The same generation in another state.
    pub const fn becoming(self, state: State, lane: LaneId) -> Self {
        Life::new(state, self.generation(), lane)
    }

    /// The next generation, free.
    pub const fn freed(self) -> Self {
        Life::new(State::Free, self.generation().wrapping_add(1), LaneId::NONE)
    }
}

/// The word.
#[repr(transparent)]
pub struct LifeWord(AtomicU64);

impl LifeWord {
    /// A free slot of generation 0.
    pub fn new() -> Self {
        LifeWord(AtomicU64::new(0))
    }

    /// What it says now.
    #[inline]
    pub fn get(&self) -> Life {
        // PAIRS: the release in `change`: what was written into the slot before is seen.
        Life(self.0.load(Ordering::Acquire))
    }

    /// Makes it `to` if it is `from` still; whether it was.
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
