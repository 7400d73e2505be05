//! Chains of lanes: closed files and inodes without links that await freeing, and the word of each record
//! that names its keeper ([`lp_region::custody`]).

use lp_region::LaneId;
use lp_region::custody;
use lp_region::lane::Lane;
use lp_region::records::{COVERED, Inode, OpenFile};
use lp_region::slab::{Retired, Slot};
use lp_region::sync::Ordering::Relaxed;
use lp_vfs::pin;

use crate::Check;
use crate::bits::Bits;
use crate::inode::map_of;
use crate::slabs::{SlabSlots, Slabs};

/// A record that lanes keep in chains.
pub(crate) trait Chained: Retired {
    /// Its name in findings.
    const NAME: &'static str;

    /// Its slots.
    fn slots(slabs: &Slabs) -> &SlabSlots;

    /// Whether only the slot is left of it.
    fn is_empty(&self) -> bool;
}

impl Chained for OpenFile {
    const NAME: &'static str = "open file";

    fn slots(slabs: &Slabs) -> &SlabSlots {
        &slabs.files
    }

    fn is_empty(&self) -> bool {
        self.inode.load(Relaxed) == 0
    }
}

impl Chained for Inode {
    const NAME: &'static str = "inode";

    fn slots(slabs: &Slabs) -> &SlabSlots {
        &slabs.inodes
    }

    fn is_empty(&self) -> bool {
        let words = [&self.nlink, &self.xattr, &self.default_acl];
        let is_zero = words.iter().all(|word| word.load(Relaxed) == 0);
        map_of(self).0 == 0 && is_zero && self.acl.load(Relaxed) & !COVERED == 0
    }
}

impl Check<'_> {
    /// The records in all lanes' chains, and those that a dead lane was freeing or moving: all that await a
    /// sweep.
    pub(crate) fn kept<T: Chained>(&mut self) -> Bits {
        let mut chained = Bits::default();
        for lane in 1..self.lanes {
            self.chain::<T>(lane, &mut chained);
            self.marks::<T>(lane);
        }
        let mut kept = chained.clone();
        for index in self.extents.slots::<T>().collect::<Vec<_>>() {
            let word = self.region.slot::<T>(index).custody().get();
            if word != 0 && self.custody::<T>(index, word, &chained) {
                kept.insert(index);
            }
        }
        kept
    }

    /// Follows a chain as far as a sweep does: up to a record that the lane does not keep.
    fn chain<T: Chained>(&mut self, lane: u32, chained: &mut Bits) {
        let mut next = self.region.lane(LaneId(lane)).chains[T::SLAB].load(Relaxed);
        while next != 0 {
            if next > T::slots(&self.slabs).fresh {
                return self.structure(|| {
                    format!("the chain of lane {lane} leads to {} {next}, past the last", T::NAME)
                });
            }
            let record = self.region.slot::<T>(next);
            if !custody::is_kept_by(record.custody().get(), lane) {
                return self.inconsistent(|| {
                    format!("the chain of lane {lane} leads to {} {next}, which it does not keep", T::NAME)
                });
            }
            if !chained.insert(next) {
                return self.structure(|| {
                    format!("the chain of lane {lane} leads to {} {next} a second time", T::NAME)
                });
            }
            next = record.link().load(Relaxed);
        }
    }

    /// What a lane claims and unlinks: nothing between calls, unless it died.
    fn marks<T: Chained>(&mut self, index: u32) {
        let lane = self.region.lane(LaneId(index));
        let named = marks::<T>(lane);
        if named.iter().any(|slot| *slot > T::slots(&self.slabs).fresh) {
            self.structure(|| format!("lane {index} has {} {named:?} in hand, past the last", T::NAME));
        } else if named != [0; 2] && !self.is_left(lane) {
            self.inconsistent(|| format!("lane {index} has {} {named:?} in hand and is in no call", T::NAME));
        }
    }

    /// Checks the nonzero custody word of a record; returns whether a dead lane was freeing it.
    fn custody<T: Chained>(&mut self, index: u32, word: u32, chained: &Bits) -> bool {
        let record = self.region.slot::<T>(index);
        let slots = T::slots(&self.slabs);
        if !slots.is_used(index) {
            if !slots.hand.has(index) {
                self.inconsistent(|| format!("{} {index} is free and in custody ({word:#x})", T::NAME));
            }
            return false;
        }
        let (keeper, claimer) = (custody::keeper(word), custody::claimer(word));
        let is_known = word & custody::LISTED != 0 || word & (custody::ASKED | custody::HUSK) == 0;
        if !is_known || word & custody::CLAIMED == 0 && claimer != 0 {
            self.inconsistent(|| format!("{} {index} is in a custody that cannot be ({word:#x})", T::NAME));
        }
        if word & custody::LISTED != 0 && !chained.has(index) && !self.is_in_hand_of::<T>(keeper, index) {
            self.inconsistent(|| {
                format!("{} {index} is kept by lane {keeper} and is not in its chain", T::NAME)
            });
        }
        if word & custody::HUSK != 0 && !record.is_empty() {
            self.inconsistent(|| format!("{} {index} is freed and has content", T::NAME));
        }
        let is_claimed = word & custody::CLAIMED != 0;
        let is_left = is_claimed && self.is_in_hand_of::<T>(claimer, index);
        if is_claimed && !is_left {
            self.inconsistent(|| {
                format!("{} {index} is claimed by lane {claimer}, which does not free it", T::NAME)
            });
        }
        is_left
    }

    /// Whether a lane died with a record in hand; its burial finishes the operation.
    fn is_in_hand_of<T: Chained>(&self, lane: u32, index: u32) -> bool {
        if lane == 0 || lane >= self.lanes {
            return false;
        }
        let lane = self.region.lane(LaneId(lane));
        let is_pinned = || {
            let slots = [pin::slot::OPEN, pin::slot::CLOSE].map(|slot| lane.pins[slot].load(Relaxed));
            T::SLAB == OpenFile::SLAB && slots.contains(&u64::from(index))
        };
        let is_named = || marks::<T>(lane).contains(&index) || is_pinned();
        (lane.taken[T::SLAB].load(Relaxed) == index || is_named()) && self.is_left(lane)
    }

    /// Whether a lane belongs to a dead thread.
    fn is_left(&self, lane: &Lane) -> bool {
        lane.process.load(Relaxed) != 0 && self.is_dead(LaneId(lane.id.load(Relaxed)))
    }
}

/// What a lane claims, and what it adds to or removes from its chain.
fn marks<T: Slot>(lane: &Lane) -> [u32; 2] {
    [lane.claims[T::SLAB].load(Relaxed) as u32, lane.unlisting[T::SLAB].load(Relaxed)]
}
