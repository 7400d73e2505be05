//! [`CandidateSet`]: the candidates of one sweep, on its stack, and what names them.

/// Maximum number of candidates of one kind.
const CAPACITY: usize = 128;
/// Size of the hash table: twice as many, so that searches are short.
const PLACES: usize = 2 * CAPACITY;

/// The strongest reference found to a candidate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Reference {
    /// None.
    Not = 0,
    /// A pin of a call under way.
    Pinned = 1,
    /// An entry of a table.
    Named = 2,
}

/// How a candidate was found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is in a lane's list or chain, or the caller named it.
    Listed,
    /// It is the inode of a candidate.
    Derived,
}

/// Slots by index, with the generation that they had when they became candidates.
pub(crate) struct CandidateSet {
    slots: [(u32, u32); CAPACITY],
    found: [Reference; CAPACITY],
    origin: [Origin; CAPACITY],
    count: usize,
    /// Position in `slots` plus one, by hash of the index; 0 if none.
    places: [u8; PLACES],
}

impl CandidateSet {
    pub(crate) const fn new() -> Self {
        CandidateSet {
            slots: [(0, 0); CAPACITY],
            found: [Reference::Not; CAPACITY],
            origin: [Origin::Listed; CAPACITY],
            count: 0,
            places: [0; PLACES],
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == CAPACITY
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
        let mut place = Self::hash(index);
        while self.places[place] != 0 {
            place = (place + 1) % PLACES;
        }
        self.slots[self.count] = (index, generation);
        self.found[self.count] = Reference::Not;
        self.origin[self.count] = origin;
        self.count += 1;
        self.places[place] = self.count as u8;
        true
    }

    /// Records that something names a slot. Returns whether the set contains the slot.
    pub(crate) fn find(&mut self, index: u32, how: Reference) -> bool {
        let Some(position) = self.position(index) else { return false };
        if self.found[position] < how {
            self.found[position] = how;
        }
        true
    }

    /// What was found to name a slot, if the set contains it.
    pub(crate) fn state(&self, index: u32) -> Option<Reference> {
        self.position(index).map(|position| self.found[position])
    }

    /// Index, generation, what was found, and origin of each candidate.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32, Reference, Origin)> + '_ {
        let known = self.slots[..self.count].iter().zip(&self.found).zip(&self.origin);
        known.map(|(((index, generation), found), origin)| (*index, *generation, *found, *origin))
    }

    #[inline]
    fn position(&self, index: u32) -> Option<usize> {
        let mut place = Self::hash(index);
        loop {
            let position = (self.places[place] as usize).checked_sub(1)?;
            if self.slots[position].0 == index {
                return Some(position);
            }
            place = (place + 1) % PLACES;
        }
    }

    fn hash(index: u32) -> usize {
        // Fibonacci hashing (Knuth, TAOCP vol. 3, section 6.4) spreads neighbours in a slab.
        (index.wrapping_mul(0x9e37_79b9) >> 24) as usize % PLACES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_seen_twice_is_found_everywhere() {
        let mut set = CandidateSet::new();
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
