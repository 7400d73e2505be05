//! [`Custody`]: which lane keeps a retired record until it can be freed, and which lane frees it.
//!
//! Closed open files and inodes without links are kept in chains, one of each kind per lane, until a sweep
//! finds that nothing names them ([`crate::lane::Lane::chains`]). Only the chain's own lane links and
//! unlinks. Any lane may free a record that it has found unreferenced: it claims the record by one
//! compare-and-swap, frees what the record holds, and leaves the slot in the chain as a *husk*, which the
//! chain's lane removes. A record that is in no chain is claimed the same way and its slot freed at once.
//!
//! | bits | meaning |
//! |---|---|
//! | [`LISTED`], keeper | in the keeper's chain, or about to be linked in or unlinked by it |
//! | [`ASKED`] | released by some lane since the keeper's last sweep began |
//! | [`CLAIMED`], claimer | the claimer frees it, or finds that the slot has been reused and lets go |
//! | [`HUSK`] | freed except for the slot |
//!
//! Linearisation point of freeing: the exchange in [`Custody::claim`]. ABA: the claimer names record and
//! generation in its lane first and compares the generation after the exchange. Progress: lock-free; a
//! stopped keeper keeps slots, not what they held. Source: Michael, "Hazard Pointers" (2004), for per-thread
//! lists of retired records.

use crate::layout::LANE_BITS;
use crate::sync::{AtomicU32, Ordering};

/// In a chain.
pub const LISTED: u32 = 1;
/// Another scan is requested.
pub const ASKED: u32 = 2;
/// A lane is freeing it.
pub const CLAIMED: u32 = 4;
/// Freed except for the slot.
pub const HUSK: u32 = 8;

const KEEPER: u32 = 4;
const CLAIMER: u32 = KEEPER + LANE_BITS;
const INDEX: u32 = (1 << LANE_BITS) - 1;

const _: () = assert!(CLAIMER + LANE_BITS == u32::BITS);

/// The word; see the module. Lanes are named by index: a lane's next owner comes after its burial, which
/// settles what it kept and claimed.
#[repr(transparent)]
pub struct Custody(AtomicU32);

impl Custody {
    /// In no lane's custody.
    pub fn new() -> Self {
        Custody(AtomicU32::new(0))
    }

    /// The word.
    #[inline]
    pub fn get(&self) -> u32 {
        // PAIRS: the releases below. What was done to the record before is visible.
        self.0.load(Ordering::Acquire)
    }

    /// Requests a scan for the record. True if it is in no chain: then the caller, lane number `me`, is its
    /// keeper and must link it in.
    pub fn ask(&self, me: u32) -> bool {
        let (_, listed) = self.update(|word| match word & LISTED {
            0 => Some(word & !(INDEX << KEEPER) | LISTED | ASKED | (me & INDEX) << KEEPER),
            _ => Some(word | ASKED),
        });
        listed
    }

    /// Makes lane number `me`, which has claimed the record, its keeper instead, unless it is in a chain by
    /// now; returns whether it did.
    pub fn keep_claimed(&self, me: u32) -> bool {
        self.update(|word| (word & LISTED == 0).then_some(LISTED | ASKED | (me & INDEX) << KEEPER)).1
    }

    /// Takes a record that the caller has claimed out of custody, unless it is in a chain by now; returns
    /// whether it did.
    pub fn clear_claimed(&self) -> bool {
        self.update(|word| (word & LISTED == 0).then_some(0)).1
    }

    /// Called by the keeper before a scan: a later [`Custody::ask`] requests another one.
    pub fn begin_look(&self) {
        self.update(|word| Some(word & !ASKED));
    }

    /// Claims the record for lane number `me` unless it is claimed or freed.
    pub fn claim(&self, me: u32) -> bool {
        self.update(|word| (word & (CLAIMED | HUSK) == 0).then_some(word | CLAIMED | (me & INDEX) << CLAIMER))
            .1
    }

    /// Releases the claim of [`Custody::claim`].
    pub fn unclaim(&self) {
        self.update(|word| Some(word & !(CLAIMED | INDEX << CLAIMER)));
    }

    /// Makes a husk of a record in a chain that the caller has claimed and emptied.
    pub fn make_husk(&self) {
        self.update(|word| Some(word & !(CLAIMED | ASKED | INDEX << CLAIMER) | HUSK));
    }

    /// Makes a husk of an emptied record that a dead lane had claimed. It stays in its chain, or else goes to
    /// that of lane number `keeper`.
    pub fn keep_husk(&self, keeper: u32) {
        self.update(|word| {
            let kept = if word & LISTED != 0 { word & INDEX << KEEPER } else { (keeper & INDEX) << KEEPER };
            Some(LISTED | HUSK | kept)
        });
    }

    /// Takes a record out of custody if no lane has claimed it or asked for it; returns whether it did. The
    /// caller is its keeper and has unlinked it.
    pub fn unlist(&self) -> bool {
        self.update(|word| (word & (ASKED | CLAIMED | HUSK) == 0).then_some(0)).1
    }

    /// Takes a record that only the caller can reach out of custody.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Applies `change` to the word, unless that returns none. Returns the word before, and whether it
    /// changed other than in [`ASKED`].
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

/// Whether lane number `lane` keeps the record, according to a word.
pub fn is_kept_by(word: u32, lane: u32) -> bool {
    word & LISTED != 0 && keeper(word) == lane & INDEX
}

/// The keeper's lane number in a word; valid only with [`LISTED`].
pub fn keeper(word: u32) -> u32 {
    word >> KEEPER & INDEX
}

/// The claimer's lane number in a word; 0 without [`CLAIMED`].
pub fn claimer(word: u32) -> u32 {
    word >> CLAIMER & INDEX
}

/// Whether lane number `lane` has claimed the record, according to a word.
pub fn is_claimed_by(word: u32, lane: u32) -> bool {
    word & CLAIMED != 0 && claimer(word) == lane & INDEX
}
