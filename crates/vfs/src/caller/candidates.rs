//! [`CandidateSet`]: the candidates of one sweep, and what names them.

use core::cell::UnsafeCell;

/// Maximum number of open files in a set.
pub(crate) const FILES: usize = 512;
/// Maximum number of inodes in a set.
pub(crate) const INODES: usize = 1024;
/// Fewest slots for which a set has room.
const FEWEST: usize = 128;

/// The strongest reference found to a candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reference {
    /// None.
    Not,
    /// A pin of a call under way.
    Pinned,
    /// An entry of a table.
    Named,
}

/// How a candidate was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is in a lane's list or chain, or the caller named it.
    Listed,
    /// It is the inode of a candidate.
    Derived,
}

/// A slot with the generation that it had when it became a candidate.
#[derive(Clone, Copy)]
struct Candidate {
    index: u32,
    generation: u32,
    /// [`PINNED`], [`NAMED`], [`DERIVED`]: plain bits, so that memory is valid with any bytes.
    state: u32,
}

const PINNED: u32 = 1;
const NAMED: u32 = 2;
const DERIVED: u32 = 4;

impl Candidate {
    fn found(&self) -> Reference {
        match self.state & (PINNED | NAMED) {
            0 => Reference::Not,
            PINNED => Reference::Pinned,
            _ => Reference::Named,
        }
    }

    fn origin(&self) -> Origin {
        if self.state & DERIVED == 0 { Origin::Listed } else { Origin::Derived }
    }
}

/// Memory of the sets of a task's sweeps, which is too large for a small stack. Any part of it is written
/// before it is read.
pub struct Candidates {
    files: UnsafeCell<Room<FILES, { 2 * FILES }>>,
    inodes: UnsafeCell<Room<INODES, { 2 * INODES }>>,
}

/// Memory of a set.
struct Room<const SLOTS: usize, const PLACES: usize> {
    places: [u16; PLACES],
    slots: [Candidate; SLOTS],
}

impl<const SLOTS: usize, const PLACES: usize> Room<SLOTS, PLACES> {
    const fn new() -> Self {
        let none = Candidate { index: 0, generation: 0, state: 0 };
        Room { places: [0; PLACES], slots: [none; SLOTS] }
    }

    /// An empty set with room for `expected` slots, or more, or as many as there is room for. It touches as
    /// much memory as it needs.
    fn set(&mut self, expected: usize) -> CandidateSet<'_> {
        let slots = expected.next_power_of_two().clamp(FEWEST, SLOTS);
        let places = &mut self.places[..2 * slots];
        places.fill(0);
        CandidateSet { slots: &mut self.slots[..slots], count: 0, places }
    }
}

impl Candidates {
    /// Memory for one sweep at a time.
    pub const fn new() -> Self {
        Candidates { files: UnsafeCell::new(Room::new()), inodes: UnsafeCell::new(Room::new()) }
    }

    /// Empty sets for so many open files and inodes.
    ///
    /// # Safety
    /// Former sets are not used any more.
    pub(crate) unsafe fn sets(&self, files: usize, inodes: usize) -> (CandidateSet<'_>, CandidateSet<'_>) {
        // SAFETY: nobody else uses it, by this function's contract.
        let (files_room, inodes_room) = unsafe { (&mut *self.files.get(), &mut *self.inodes.get()) };
        (files_room.set(files), inodes_room.set(inodes))
    }
}

impl Default for Candidates {
    fn default() -> Self {
        Candidates::new()
    }
}

/// Slots by index, with what names them.
pub(crate) struct CandidateSet<'m> {
    slots: &'m mut [Candidate],
    count: usize,
    /// Position in `slots` plus one, by hash of the index; 0 if none. Twice as many, so that searches are
    /// short.
    places: &'m mut [u16],
}

impl CandidateSet<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == self.slots.len()
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.position(index).is_some()
    }

    /// Adds a slot, at most once, so that what names it is recorded in one place. Returns false if the set is
    /// full.
    pub(crate) fn add(&mut self, index: u32, generation: u32, origin: Origin) -> bool {
        if self.contains(index) {
            return true;
        }
        if self.is_full() {
            return false;
        }
        let mut place = self.hash(index);
        while self.places[place] != 0 {
            place = (place + 1) % self.places.len();
        }
        let state = if origin == Origin::Derived { DERIVED } else { 0 };
        self.slots[self.count] = Candidate { index, generation, state };
        self.count += 1;
        self.places[place] = self.count as u16;
        true
    }

    /// Records that something names a slot. Returns whether the set contains the slot.
    pub(crate) fn find(&mut self, index: u32, how: Reference) -> bool {
        let Some(position) = self.position(index) else { return false };
        self.slots[position].state |= match how {
            Reference::Not => 0,
            Reference::Pinned => PINNED,
            Reference::Named => NAMED,
        };
        true
    }

    /// What was found to name a slot, if the set contains it.
    pub(crate) fn state(&self, index: u32) -> Option<Reference> {
        self.position(index).map(|position| self.slots[position].found())
    }

    /// Index, generation, what was found, and origin of each candidate.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, Reference, Origin)> + '_ {
        let known = self.slots[..self.count].iter();
        known.map(|slot| (slot.index, slot.generation, slot.found(), slot.origin()))
    }

    #[inline]
    fn position(&self, index: u32) -> Option<usize> {
        let mut place = self.hash(index);
        loop {
            let position = (self.places[place] as usize).checked_sub(1)?;
            if self.slots[position].index == index {
                return Some(position);
            }
            place = (place + 1) % self.places.len();
        }
    }

    fn hash(&self, index: u32) -> usize {
        // Fibonacci hashing (Knuth, TAOCP vol. 3, section 6.4) spreads neighbours in a slab.
        (index.wrapping_mul(0x9e37_79b9) >> 16) as usize % self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_seen_twice_is_found_everywhere() {
        let room = Candidates::new();
        // SAFETY: the only sets.
        let (mut set, _) = unsafe { room.sets(2, 0) };
        // A walk over several chains may meet a record again that moved between them meanwhile.
        assert!(
            set.add(7, 1, Origin::Listed) && set.add(8, 1, Origin::Listed) && set.add(7, 1, Origin::Listed)
        );
        assert!(set.find(7, Reference::Named));
        let unnamed =
            |(index, _, found, _): (u32, u32, Reference, Origin)| (found == Reference::Not).then_some(index);
        assert!(set.iter().filter_map(unnamed).eq([8]));
    }
}
