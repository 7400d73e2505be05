//! Slabs: which slots are free, and that each is free once.

use lp_region::LaneId;
use lp_region::records::{Bucket, Dirent, Inode, LockRecord, LongName, Mapping, OpenFile};
use lp_region::slab::{BATCH, Slot};
use lp_region::sync::Ordering::Relaxed;

use crate::bits::Bits;
use crate::{Check, header};

/// The slots of one slab.
#[derive(Default)]
pub(crate) struct Slots {
    /// Last slot that was ever handed out.
    pub(crate) fresh: u32,
    /// On the shared list or in a lane's cache.
    free: Bits,
    /// In a lane's hand, linked in or not.
    pub(crate) hand: Bits,
}

impl Slots {
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
    pub(crate) files: Slots,
    pub(crate) inodes: Slots,
    pub(crate) entries: Slots,
    pub(crate) overflows: Slots,
    pub(crate) locks: Slots,
    pub(crate) mappings: Slots,
    pub(crate) names: Slots,
}

impl Check<'_> {
    /// Finds out what is free.
    pub(crate) fn slabs(&mut self) {
        self.slabs.files = self.slab::<OpenFile>("open file");
        self.slabs.inodes = self.slab::<Inode>("inode");
        self.slabs.entries = self.slab::<Dirent>("entry");
        self.slabs.overflows = self.slab::<Bucket>("overflow bucket");
        self.slabs.locks = self.slab::<LockRecord>("lock");
        self.slabs.mappings = self.slab::<Mapping>("mapping");
        self.slabs.names = self.slab::<LongName>("long name");
    }

    fn slab<T: Slot>(&mut self, name: &str) -> Slots {
        let head = &self.region.header().slabs[T::SLAB];
        let fresh = head.fresh.load(Relaxed);
        // Lanes hold slots that nobody has touched yet.
        let most = (self.extents.last::<T>() as usize + self.lanes as usize * BATCH).min(T::SLOTS - 1);
        if fresh > most as u64 {
            self.structure(|| format!("the slab of {name} slots says that {fresh} were handed out"));
        }
        let mut slots = Slots { fresh: fresh.min(most as u64) as u32, ..Slots::default() };
        slots.hand = header::in_hand::<T>(self).fold(Bits::default(), |mut hand, index| {
            hand.insert(index);
            hand
        });
        self.list::<T>(name, &mut slots);
        self.caches::<T>(name, &mut slots);
        self.lock(&head.lock, || format!("the slab of {name} slots"));
        slots
    }

    fn list<T: Slot>(&mut self, name: &str, slots: &mut Slots) {
        let head = &self.region.header().slabs[T::SLAB];
        let mut next = head.free.load(Relaxed);
        while next != 0 {
            if next > u64::from(slots.fresh) {
                self.structure(|| {
                    format!("the list of free {name} slots leads to slot {next}, past the last")
                });
                return;
            }
            if !slots.free.insert(next as u32) {
                self.structure(|| format!("the list of free {name} slots is a ring through slot {next}"));
                return;
            }
            next = u64::from(self.region.slot::<T>(next as u32).link().load(Relaxed));
        }
        let (counted, said) = (slots.free.len(), head.free_count.load(Relaxed));
        if counted != said {
            let dead = head.lock.holder();
            let what = || format!("the list of free {name} slots has {counted}, its count says {said}");
            if dead.is_some() && self.is_dead(dead) { self.leftover(what) } else { self.inconsistent(what) }
        }
    }

    fn caches<T: Slot>(&mut self, name: &str, slots: &mut Slots) {
        for index in 1..self.lanes {
            let cache = &self.region.lane(LaneId(index)).caches[T::SLAB];
            let count = cache.count.load(Relaxed) as usize;
            for slot in cache.slots.iter().take(count) {
                let slot = slot.load(Relaxed);
                // A death may come between handing slots to a cache and saying so.
                let most = (u64::from(slots.fresh) + BATCH as u64).min(T::SLOTS as u64 - 1);
                if slot == 0 || u64::from(slot) > most {
                    self.structure(|| {
                        format!("lane {index} has {name} slot {slot} in its cache, which is none")
                    });
                } else if !slots.free.insert(slot) && !slots.hand.has(slot) {
                    self.inconsistent(|| format!("{name} slot {slot} is free twice"));
                } else if slot > slots.fresh && !slots.hand.has(slot) {
                    slots.fresh = slots.fresh.max(slot);
                }
            }
        }
    }
}
