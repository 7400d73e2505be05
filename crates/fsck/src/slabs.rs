//! Slabs: determines which slots are free, and checks that each is free only once.

use lp_region::LaneId;
use lp_region::records::{Bucket, Dirent, Inode, LockRecord, LongName, Mapping, OpenFile};
use lp_region::slab::{BATCH, Slot};
use lp_region::sync::Ordering::Relaxed;

use crate::bits::Bits;
use crate::{Check, header};

/// The slots of one slab.
#[derive(Default)]
pub(crate) struct SlabSlots {
    /// Last slot that was ever handed out.
    pub(crate) fresh: u32,
    /// On the shared list or in a lane's cache.
    free: Bits,
    /// In a lane's hand, linked in or not.
    pub(crate) hand: Bits,
}

impl SlabSlots {
    /// Whether the slot was handed out and is not free.
    pub(crate) fn is_used(&self, index: u32) -> bool {
        index != 0 && index <= self.fresh && !self.free.has(index)
    }

    /// Slots that are not free.
    pub(crate) fn in_use(&self) -> u64 {
        u64::from(self.fresh).saturating_sub(self.free.len())
    }
}

/// All slabs.
#[derive(Default)]
pub(crate) struct Slabs {
    pub(crate) files: SlabSlots,
    pub(crate) inodes: SlabSlots,
    pub(crate) entries: SlabSlots,
    pub(crate) overflows: SlabSlots,
    pub(crate) locks: SlabSlots,
    pub(crate) mappings: SlabSlots,
    pub(crate) names: SlabSlots,
}

impl Check<'_> {
    /// Determines the free slots.
    pub(crate) fn slabs(&mut self) {
        self.slabs.files = self.slab::<OpenFile>("open file");
        self.slabs.inodes = self.slab::<Inode>("inode");
        self.slabs.entries = self.slab::<Dirent>("entry");
        self.slabs.overflows = self.slab::<Bucket>("overflow bucket");
        self.slabs.locks = self.slab::<LockRecord>("lock");
        self.slabs.mappings = self.slab::<Mapping>("mapping");
        self.slabs.names = self.slab::<LongName>("long name");
    }

    fn slab<T: Slot>(&mut self, name: &str) -> SlabSlots {
        let fresh = self.region.header().slabs[T::SLAB].last();
        // Lanes may cache slots that nobody has touched yet.
        let most = (self.extents.last::<T>() as usize + self.lanes as usize * BATCH).min(T::SLOTS - 1);
        if fresh as usize > most {
            self.structure(|| format!("the slab of {name} slots says that {fresh} were handed out"));
        }
        let mut slots = SlabSlots { fresh: fresh.min(most as u32), ..SlabSlots::default() };
        slots.hand = header::in_hand::<T>(self).fold(Bits::default(), |mut hand, index| {
            hand.insert(index);
            hand
        });
        self.list::<T>(name, &mut slots);
        self.caches::<T>(name, &mut slots);
        slots
    }

    fn list<T: Slot>(&mut self, name: &str, slots: &mut SlabSlots) {
        let head = &self.region.header().slabs[T::SLAB];
        if head.free.load().lane().max(head.fresh.load().lane()) >= self.lanes.max(1) {
            self.structure(|| {
                format!("the slab of {name} slots was changed by a lane that was never claimed")
            });
        }
        let mut next = head.top();
        while next != 0 {
            if next > slots.fresh {
                self.structure(|| {
                    format!("the list of free {name} slots leads to slot {next}, past the last")
                });
                return;
            }
            if !slots.free.insert(next) {
                self.structure(|| format!("the list of free {name} slots is a ring through slot {next}"));
                return;
            }
            next = self.region.slot::<T>(next).link().load(Relaxed);
        }
        let put = |lane: u32| self.region.settled::<T>(self.region.lane(LaneId(lane))).put();
        let said = (1..self.lanes).map(put).fold(head.base.load(Relaxed) as u32, u32::wrapping_add);
        let counted = slots.free.len();
        if counted != u64::from(said) {
            self.inconsistent(|| format!("the list of free {name} slots has {counted}, lanes count {said}"));
        }
    }

    fn caches<T: Slot>(&mut self, name: &str, slots: &mut SlabSlots) {
        for index in 1..self.lanes {
            let settled = self.region.settled::<T>(self.region.lane(LaneId(index)));
            for slot in settled.slots().iter().copied() {
                if slot == 0 || slot > slots.fresh {
                    self.structure(|| {
                        format!("lane {index} has {name} slot {slot} in its cache, which is none")
                    });
                } else if !slots.free.insert(slot) && !slots.hand.has(slot) {
                    self.inconsistent(|| format!("{name} slot {slot} is free twice"));
                }
            }
        }
    }
}
