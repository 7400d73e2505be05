//! [`Signed`]: a word that says who changed it last, so that an exchange by a lane that died can be told from
//! one that never happened.
//!
//! A lane that wants to exchange the word first writes down in its own [`Note`] what for, and which turn it
//! would be. The new word carries the lane and the turn. Whoever replaces that word confirms the exchange in
//! that lane's note first. So the exchange of a dead lane took effect if and only if the word still carries
//! its signature or its note is confirmed ([`Signed::took_effect`]), and whoever buries the lane finishes
//! what the exchange was for, or forgets it.
//!
//! | bits of a word | say |
//! |---|---|
//! | the low `VALUE` | the value |
//! | the next [`LANE_BITS`] | the lane that changed it last; 0 none |
//! | the rest | the turn, which grows with each change |
//!
//! | bits of a note | say |
//! |---|---|
//! | as many as a turn has | the turn |
//! | from there to 62 | what the exchange is for; the bits of `PLACE` say of which word. Never 0 |
//! | 63 | confirmed: the exchange took effect |
//!
//! Linearisation point: the exchange. ABA defence: lane and turn; a lane would have to stop between load and
//! exchange while the turns go round exactly. Progress: lock-free; nobody waits for a lane that is stopped at
//! whatever instruction. Source: Attiya, Ben-Baruch, Hendler, "Nesting-Safe Recoverable Linearizability"
//! (2018), for the recoverable exchange.

use crate::layout::LANE_BITS;
use crate::sync::{AtomicU64, Ordering};

const CONFIRMED: u64 = 1 << 63;
const LANE: u64 = (1 << LANE_BITS) - 1;

/// The word; see the module.
#[repr(transparent)]
pub struct Signed<const VALUE: u32, const PLACE: u64>(AtomicU64);

/// What a lane is exchanging; see the module. The lane's own but for the confirmation.
#[repr(transparent)]
pub struct Note(AtomicU64);

/// A [`Signed`] as one load saw it.
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

    /// The word as it is now.
    #[inline(always)]
    pub fn load(&self) -> Seen<VALUE> {
        // PAIRS: the exchange: what its lane wrote before is seen, its note included.
        Seen(self.0.load(Ordering::Acquire))
    }

    /// Sets the value while nobody else uses the word.
    pub fn reset(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed); // Relaxed: nobody else uses it.
    }

    /// Makes the value `value` if the word is still as it was `seen`; whether it was. `what` goes into the
    /// note of lane number `me`, and the caller has to [`Note::clear`] that, after it has done what the
    /// exchange was for if there was one. `note` gives a lane's note.
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
        // PAIRS: `load`: who sees the exchange sees what it is for.
        note(me).0.store(what << Self::TURN_BITS | turn, Ordering::Release);
        let last = seen.lane();
        if last != 0 && last != me {
            note(last).confirm((what & PLACE) << Self::TURN_BITS | seen.turn(), Self::NAMING);
        }
        let new = turn << Seen::<VALUE>::TURN | u64::from(me) << VALUE | value;
        // PAIRS: `load`. Relaxed on failure: the caller loads again.
        self.0.compare_exchange(seen.0, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Bits of a note that say which exchange it is about.
    const NAMING: u64 = PLACE << Self::TURN_BITS | ((1 << Self::TURN_BITS) - 1);

    /// What a note says that its lane is exchanging a word of this kind for; 0 nothing.
    pub fn noted(note: &Note) -> u64 {
        (note.0.load(Ordering::Acquire) & !CONFIRMED) >> Self::TURN_BITS
    }

    /// The turn that a note is about.
    pub fn noted_turn(note: &Note) -> u64 {
        note.0.load(Ordering::Relaxed) & ((1 << Self::TURN_BITS) - 1) // Relaxed: the lane's own, or of the dead.
    }

    /// Whether the exchange that lane number `lane`, which is dead, noted took effect. This is the word that
    /// it noted.
    pub fn took_effect(&self, lane: u32, note: &Note) -> bool {
        let seen = self.load();
        // After the word: who replaced it confirmed before.
        seen.lane() == lane && seen.turn() == Self::noted_turn(note)
            || note.0.load(Ordering::Acquire) & CONFIRMED != 0
    }
}

impl Note {
    /// A note of nothing.
    pub fn new() -> Self {
        Note(AtomicU64::new(0))
    }

    /// Forgets the exchange: what it was for is done, or it did not take effect.
    #[inline]
    pub fn clear(&self) {
        // Release: who sees it forgotten sees it done.
        self.0.store(0, Ordering::Release);
    }

    /// Confirms the exchange of which the bits of `naming` are `name`, unless it was forgotten meanwhile.
    #[inline]
    fn confirm(&self, name: u64, naming: u64) {
        let word = self.0.load(Ordering::Relaxed); // Relaxed: the load of the word that it explains acquired it.
        if word & (naming | CONFIRMED) == name {
            // PAIRS: `took_effect`, by way of the exchange that follows. Whoever else changed it confirmed it
            // or forgot it.
            let _ = self.0.compare_exchange(word, word | CONFIRMED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Default for Note {
    fn default() -> Self {
        Note::new()
    }
}
