//! [`Custody`]: which lane keeps a retired record until it can be freed, and which lane frees it.
//!
//! Open files that were closed and inodes without links stand in chains, one of each kind for each lane, until a sweep
//! finds that nothing names them ([`crate::lane::Lane::chains`]). The chain's own lane alone links and unlinks. Any lane
//! may free what it has found unreferenced: it claims the record by one exchange, frees what the record holds, and leaves
//! the slot in the chain as a *husk*, for the chain's lane to take out. A record that is in no chain is claimed the same
//! way and its slot freed at once.
//!
//! | bits | say |
//! |---|---|
//! | [`LISTED`], keeper | in the keeper's chain, or about to be linked in or unlinked by it |
//! | [`ASKED`] | somebody let go of it since the keeper's last sweep began |
//! | [`CLAIMED`], claimer | the claimer frees it, or finds that it is another by now and lets go |
//! | [`HUSK`] | freed but for the slot |
//!
//! Linearisation point of freeing: the exchange in [`Custody::claim`]. ABA: the claimer names record and generation in
//! its lane first and compares the generation after the exchange. Progress: lock-free; a stopped keeper keeps slots, not
//! what they held. Source: Michael, "Hazard Pointers" (2004), for lists of retired records by thread.

use crate::layout::LANE_BITS;
use crate::sync::{AtomicU32, Ordering};

/// It stands in a chain.
pub const LISTED: u32 = 1;
/// A new look is asked for.
pub const ASKED: u32 = 2;
/// A lane frees it.
pub const CLAIMED: u32 = 4;
/// Nothing is left of it but the slot.
pub const HUSK: u32 = 8;

const KEEPER: u32 = 4;
const CLAIMER: u32 = KEEPER + LANE_BITS;
const INDEX: u32 = (1 << LANE_BITS) - 1;

const _: () = assert!(CLAIMER + LANE_BITS == u32::BITS);

/// The word; see the module. Lanes are named by index: a lane's next owner comes after its burial, which settles what
/// it kept and claimed.
#[repr(transparent)]
pub struct Custody(AtomicU32);

impl Custody {
    /// In nobody's custody.
    pub fn new() -> Self {
        Custody(AtomicU32::new(0))
    }

    /// The word.
    #[inline]
    pub fn get(&self) -> u32 {
        // PAIRS: the releases below: what was done to the record before is seen.
        self.0.load(Ordering::Acquire)
    }

    /// Asks for a look at the record. True if it is in no chain: the caller, lane number `me`, is its keeper from now on and
    /// links it in.
    pub fn ask(&self, me: u32) -> bool {
        let (_, listed) = self.update(|word| match word & LISTED {
            0 => Some(word & !(INDEX << KEEPER) | LISTED | ASKED | (me & INDEX) << KEEPER),
            _ => Some(word | ASKED),
        });
        listed
    }

    /// Makes lane number `me`, which has claimed the record, its keeper instead, unless it stands in a chain
    /// by now; whether that was so.
    pub fn keep_claimed(&self, me: u32) -> bool {
        self.update(|word| (word & LISTED == 0).then_some(LISTED | ASKED | (me & INDEX) << KEEPER)).1
    }

    /// Takes a record that the caller has claimed out of custody, unless it stands in a chain by now; whether
    /// that was so.
    pub fn clear_claimed(&self) -> bool {
        self.update(|word| (word & LISTED == 0).then_some(0)).1
    }

    /// Notes that the keeper is about to look: who asks from now on asks for another look.
    pub fn begin_look(&self) {
        self.update(|word| Some(word & !ASKED));
    }

    /// Claims the record for lane number `me` unless it is claimed or freed.
    pub fn claim(&self, me: u32) -> bool {
        self.update(|word| (word & (CLAIMED | HUSK) == 0).then_some(word | CLAIMED | (me & INDEX) << CLAIMER))
            .1
    }

    /// Lets go of what [`Custody::claim`] claimed.
    pub fn unclaim(&self) {
        self.update(|word| Some(word & !(CLAIMED | INDEX << CLAIMER)));
    }

    /// Makes a record in a chain, which the caller has claimed and emptied, a husk.
    pub fn make_husk(&self) {
        self.update(|word| Some(word & !(CLAIMED | ASKED | INDEX << CLAIMER) | HUSK));
    }

    /// Makes a record that a dead lane had claimed and that is empty by now a husk: in the chain it stands in, or else in that
    /// of lane number `keeper`.
    pub fn keep_husk(&self, keeper: u32) {
        self.update(|word| {
            let kept = if word & LISTED != 0 { word & INDEX << KEEPER } else { (keeper & INDEX) << KEEPER };
            Some(LISTED | HUSK | kept)
        });
    }

    /// Takes a record that nobody frees or asked for out of custody; whether that was so. The caller is its keeper and has
    /// unlinked it.
    pub fn unlist(&self) -> bool {
        self.update(|word| (word & (ASKED | CLAIMED | HUSK) == 0).then_some(0)).1
    }

    /// Takes a record that only the caller knows out of custody.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Changes the word by `change`, unless that gives none: the word before, and whether it changed but for
    /// [`ASKED`].
    fn update(&self, change: impl Fn(u32) -> Option<u32>) -> (u32, bool) {
        let mut old = self.get();
        loop {
            let Some(new) = change(old) else { return (old, false) };
            // PAIRS: `get`.
            match self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (old, (old ^ new) & !ASKED != 0),
                Err(seen) => old = seen,
            }
        }
    }
}

impl Default for Custody {
    fn default() -> Self {
        Custody::new()
    }
}

/// Whether a word says that lane number `lane` keeps the record.
pub fn is_kept_by(word: u32, lane: u32) -> bool {
    word & LISTED != 0 && keeper(word) == lane & INDEX
}

/// The number of the lane that a word names as the keeper; it counts with [`LISTED`] only.
pub fn keeper(word: u32) -> u32 {
    word >> KEEPER & INDEX
}

/// The number of the lane that a word names as the claimer; 0 without [`CLAIMED`].
pub fn claimer(word: u32) -> u32 {
    word >> CLAIMER & INDEX
}

/// Whether a word says that lane number `lane` has claimed the record.
pub fn is_claimed_by(word: u32, lane: u32) -> bool {
    word & CLAIMED != 0 && claimer(word) == lane & INDEX
}
