//! [`Signed`]: a word that records which lane changed it last, so that an exchange by a dead lane can be
//! distinguished from one that never happened.
//!
//! A lane that wants to exchange the word first records the purpose and the turn in its own [`Note`]. The new
//! word carries the lane and the turn. A lane that replaces that word first confirms the exchange in the
//! former lane's note. So the exchange of a dead lane took effect if and only if the word still carries its
//! signature or its note is confirmed ([`Signed::took_effect`]). The burial of the lane then finishes what
//! the exchange was for, or discards it.
//!
//! | bits of a word | meaning |
//! |---|---|
//! | the low `VALUE` | the value |
//! | the next [`LANE_BITS`] | the lane that changed it last; 0 none |
//! | the rest | the turn, incremented by each change |
//!
//! | bits of a note | meaning |
//! |---|---|
//! | as many as a turn has | the turn |
//! | from there to 62 | the purpose of the exchange; the bits of `PLACE` identify the word. Never 0 |
//! | 63 | confirmed: the exchange took effect |
//!
//! Linearisation point: the exchange. ABA defence: lane and turn; a lane would have to stop between load and
//! exchange while the turns wrap around exactly. Progress: lock-free; no lane waits for one that is stopped
//! at any instruction. Source: Attiya, Ben-Baruch, Hendler, "Nesting-Safe Recoverable Linearizability"
//! (2018), for the recoverable exchange.

use crate::layout::LANE_BITS;
use crate::sync::{AtomicU64, Ordering};

const CONFIRMED: u64 = 1 << 63;
const LANE: u64 = (1 << LANE_BITS) - 1;

/// The word; see the module.
#[repr(transparent)]
pub struct Signed<const VALUE: u32, const PLACE: u64>(AtomicU64);

/// A lane's pending exchange; see the module. Only the lane itself writes it, except for the confirmation.
#[repr(transparent)]
pub struct Note(AtomicU64);

/// A [`Signed`] as seen by one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen<const VALUE: u32>(u64);

impl<const VALUE: u32> Seen<VALUE> {
    const TURN: u32 = VALUE + LANE_BITS;

    /// The value.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0 & ((1 << VALUE) - 1)
    }

    /// Number of the lane that changed it last; 0 none.
    pub fn lane(self) -> u32 {
        (self.0 >> VALUE & LANE) as u32
    }

    /// The whole word: another number after each exchange, until the turns wrap around.
    #[inline(always)]
    pub fn word(self) -> u64 {
        self.0
    }

    fn turn(self) -> u64 {
        self.0 >> Self::TURN
    }

    fn next_turn(self) -> u64 {
        (self.turn() + 1) & (u64::MAX >> Self::TURN)
    }
}

impl<const VALUE: u32, const PLACE: u64> Signed<VALUE, PLACE> {
    /// Bits of a turn.
    const TURN_BITS: u32 = u64::BITS - VALUE - LANE_BITS;

    /// An unsigned word.
    pub fn new(value: u64) -> Self {
        Signed(AtomicU64::new(value))
    }

    /// The current word.
    #[inline(always)]
    pub fn load(&self) -> Seen<VALUE> {
        // PAIRS: the exchange. What its lane wrote before is visible, including its note.
        Seen(self.0.load(Ordering::Acquire))
    }

    /// Sets the value while nobody else uses the word.
    pub fn reset(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed); // Relaxed: nobody else uses it.
    }

    /// Changes the value to `value` if the word is still `seen`; returns whether it did. `what` goes into the
    /// note of lane number `me`. The caller must [`Note::clear`] it once it has completed what the exchange
    /// was for, if anything. `note` returns a lane's note.
    #[inline]
    pub fn exchange<'n>(
        &self,
        me: u32,
        seen: Seen<VALUE>,
        value: u64,
        what: u64,
        note: impl Fn(u32) -> &'n Note,
    ) -> bool {
        let turn = seen.next_turn();
        // PAIRS: `load`. A lane that sees the exchange sees its purpose.
        note(me).0.store(what << Self::TURN_BITS | turn, Ordering::Release);
        let last = seen.lane();
        if last != 0 && last != me {
            note(last).confirm((what & PLACE) << Self::TURN_BITS | seen.turn(), Self::NAMING);
        }
        let new = turn << Seen::<VALUE>::TURN | u64::from(me) << VALUE | value;
        // PAIRS: `load`. Relaxed on failure: the caller loads again.
        self.0.compare_exchange(seen.0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Bits of a note that identify its exchange.
    const NAMING: u64 = PLACE << Self::TURN_BITS | ((1 << Self::TURN_BITS) - 1);

    /// The purpose for which a note's lane is exchanging a word of this kind; 0 if none.
    pub fn noted(note: &Note) -> u64 {
        (note.0.load(Ordering::Acquire) & !CONFIRMED) >> Self::TURN_BITS
    }

    /// The turn in a note.
    pub(crate) fn noted_turn(note: &Note) -> u64 {
        // Relaxed: the lane's own, or of the dead.
        note.0.load(Ordering::Relaxed) & ((1 << Self::TURN_BITS) - 1)
    }

    /// Whether the exchange that the dead lane number `lane` noted took effect. `self` is the word that it
    /// noted.
    pub fn took_effect(&self, lane: u32, note: &Note) -> bool {
        let seen = self.load();
        // Read after the word: the lane that replaced it confirmed before.
        seen.lane() == lane && seen.turn() == Self::noted_turn(note)
            || note.0.load(Ordering::Acquire) & CONFIRMED != 0
    }
}

impl Note {
    /// An empty note.
    pub fn new() -> Self {
        Note(AtomicU64::new(0))
    }

    /// Clears the note: the purpose of the exchange is complete, or it did not take effect.
    #[inline]
    pub fn clear(&self) {
        // Release: a reader that sees the note cleared sees the purpose complete.
        self.0.store(0, Ordering::Release);
    }

    /// Confirms the exchange whose bits under `naming` are `name`, unless the note was cleared meanwhile.
    #[inline]
    fn confirm(&self, name: u64, naming: u64) {
        // Relaxed: the load of the word that it explains acquired it.
        let word = self.0.load(Ordering::Relaxed);
        if word & (naming | CONFIRMED) == name {
            // PAIRS: `took_effect`, through the exchange that follows. If it fails, another lane has
            // confirmed it, or it was cleared.
            let _ = self.0.compare_exchange(word, word | CONFIRMED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Default for Note {
    fn default() -> Self {
        Note::new()
    }
}
