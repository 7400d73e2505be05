//! The shared part of a slab: a [stack] of free slots, and the last slot ever handed out.
//!
//! A lane comes here once in [`BATCH`] operations and swaps one of two words, which record the lane that
//! changed them last ([`crate::signed`]). No lane waits for one that is stopped here. The lane's note shows
//! what was swapped and not carried into its cache yet: [`Region::settled`] returns the cache as it will be.
//! The burial of a dead lane carries that in.
//!
//! No word counts the free slots: each lane keeps a ledger of the slots it has pushed onto the stack, less
//! those that it popped.

use lp_abi::{Errno, Result};

use crate::ids::LaneId;
use crate::lane::{CACHE_SLOTS, Lane};
use crate::records::{Inode, SlabHead};
use crate::region::Region;
use crate::signed::Note;
use crate::slab::{BATCH, Slot};
use crate::stack::{self, Batch, Head, WordExchange};
use crate::sync::Ordering;

const _: () = assert!(BATCH <= 15 && 2 * BATCH == CACHE_SLOTS);

// Relaxed throughout: cache and ledger are the lane's own. The stores of a dead lane are ordered by its
// death. Release where a later store must not become visible before an earlier one.

/// A lane's cache of one slab, and its ledger of the stack.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    slots: [u32; CACHE_SLOTS],
    count: usize,
    ledger: u64,
}

impl Settled {
    /// The slots.
    pub fn slots(&self) -> &[u32] {
        &self.slots[..self.count.min(CACHE_SLOTS)]
    }

    /// Slots that the lane put on the stack less those that it took off, modulo 2^32.
    pub fn put(&self) -> u32 {
        self.ledger as u32
    }

    /// Accounts, once, for slots that an exchange of the stack moved.
    fn book(&mut self, turn: u64, put: u32) {
        if self.ledger >> 32 != turn {
            self.ledger = turn << 32 | u64::from(self.put().wrapping_add(put));
        }
    }
}

impl<'r> Region<'r> {
    /// Fills the empty cache of a lane. The caller owns the lane, or buries it.
    #[cold]
    pub(crate) fn refill_slow<T: Slot>(self, lane: &Lane) -> Result<()> {
        let count = &lane.caches[T::SLAB].count;
        // Relaxed, both: only this lane writes its cache.
        if count.load(Ordering::Relaxed) != 0 {
            // More than fit, in a damaged region.
            count.store(CACHE_SLOTS as u32, Ordering::Relaxed);
            return Ok(());
        }
        let head = &self.header().slabs[T::SLAB];
        // Slots that were never handed out may have no memory.
        let link = |index: u32| (index <= head.last()).then(|| self.slot::<T>(index).link());
        let take = || stack::take(&head.free, lane.number(), BATCH as u32, link, self.notes::<T>());
        while take().is_none() && !self.grow::<T>(lane, head)? {}
        self.carry_in::<T>(lane);
        Ok(())
    }

    /// Makes room in a lane's full cache. The oldest slots go; the newest, which are warm in this core's
    /// cache, stay. The caller owns the lane, or buries it.
    #[cold]
    pub(crate) fn spill_slow<T: Slot>(self, lane: &Lane) {
        let slots = &lane.caches[T::SLAB].slots;
        let slot = |place: usize| slots[place].load(Ordering::Relaxed);
        let link = |index: u32| self.slot::<T>(index).link();
        for place in 0..BATCH - 1 {
            // Relaxed: published by the exchange.
            link(slot(place)).store(slot(place + 1), Ordering::Relaxed);
        }
        let batch = Batch { first: slot(0), count: BATCH as u32 };
        let head = &self.header().slabs[T::SLAB].free;
        stack::give(head, lane.number(), batch, link(slot(BATCH - 1)), self.notes::<T>());
        self.carry_in::<T>(lane);
    }

    /// Hands out slots that were never used; false if the caller should try the stack again.
    fn grow<T: Slot>(self, lane: &Lane, head: &SlabHead) -> Result<bool> {
        let seen = head.fresh.load();
        // Slot 0 is the null handle, so a fresh slab starts at 1.
        let first = seen.value() as usize + 1;
        let end = (first + BATCH).min(self.slots_of::<T>());
        if first >= end {
            return Err(Errno::ENOSPC);
        }
        self.back_growth(T::PLACE, first, end)?;
        let batch = Batch { first: first as u32, count: (end - first) as u32 };
        Ok(stack::grow(&head.fresh, lane.number(), seen, batch, self.notes::<T>()))
    }

    /// Slots of a slab that may be handed out: of inodes, as many as the file system may use. One beyond
    /// would stay on top of the cache of the lane that gets it.
    fn slots_of<T: Slot>(self) -> usize {
        if T::SLAB != Inode::SLAB {
            return T::SLOTS;
        }
        let limit = self.header().inode_limit.load(Ordering::Relaxed); // Relaxed: immutable.
        (limit as usize).saturating_add(1).min(T::SLOTS)
    }

    /// Carries into a dead lane's cache what it had exchanged, or discards its note if the exchange did not
    /// take effect. The caller buries the lane.
    pub fn settle_slab<T: Slot>(self, lane: &Lane) {
        if stack::noted(&lane.moving[T::SLAB].note).is_some() {
            let settled = self.settled::<T>(lane);
            store::<T>(lane, &settled);
        }
    }

    /// A lane's cache and ledger as they are once its last exchange is carried in, if that took effect. The
    /// lane is dead, in no call, or the caller's.
    pub fn settled<T: Slot>(self, lane: &Lane) -> Settled {
        let now = held::<T>(lane);
        let note = &lane.moving[T::SLAB].note;
        let head = &self.header().slabs[T::SLAB];
        match stack::noted(note) {
            Some((kind, batch)) if word(head, kind).took_effect(lane.number(), note) => {
                self.after::<T>(now, kind, batch, Head::noted_turn(note))
            }
            _ => now,
        }
    }

    /// Carries in the result of the lane's own exchange.
    fn carry_in<T: Slot>(self, lane: &Lane) {
        let note = &lane.moving[T::SLAB].note;
        if let Some((kind, batch)) = stack::noted(note) {
            let after = self.after::<T>(held::<T>(lane), kind, batch, Head::noted_turn(note));
            store::<T>(lane, &after);
        }
    }

    /// The state after an exchange, in absolute terms: applying it again after it was carried in, wholly or
    /// in part, gives the same result.
    fn after<T: Slot>(self, mut now: Settled, kind: WordExchange, batch: Batch, turn: u64) -> Settled {
        let count = batch.count as usize;
        match kind {
            WordExchange::Take => {
                let mut next = batch.first;
                for slot in &mut now.slots[..count] {
                    *slot = next;
                    next = self.slot::<T>(next).link().load(Ordering::Relaxed);
                }
                now.count = count;
                now.book(turn, batch.count.wrapping_neg());
            }
            WordExchange::Give => {
                now.slots.copy_within(count.., 0);
                now.count = CACHE_SLOTS - count;
                now.book(turn, batch.count);
            }
            WordExchange::Fresh => {
                // The lowest is taken first.
                for (slot, index) in now.slots[..count].iter_mut().rev().zip(batch.first..) {
                    *slot = index;
                }
                now.count = count;
            }
        }
        now
    }

    fn notes<T: Slot>(self) -> impl Fn(u32) -> &'r Note {
        move |lane| &self.lane(LaneId(lane)).moving[T::SLAB].note
    }

    /// Slots of a slab that are in use now, not counting those that lanes cache.
    pub fn in_use<T: Slot>(self) -> u64 {
        let head = &self.header().slabs[T::SLAB];
        let lanes = 1..self.header().lane_limit.load(Ordering::Relaxed);
        let (mut put, mut ready) = (head.base.load(Ordering::Relaxed) as u32, 0);
        for lane in lanes.map(|lane| self.lane(LaneId(lane))) {
            put = put.wrapping_add(lane.moving[T::SLAB].ledger.load(Ordering::Relaxed) as u32);
            ready += u64::from(lane.caches[T::SLAB].count.load(Ordering::Relaxed));
        }
        // While lanes come and go, the sum may match no single moment and may be negative.
        u64::from(head.last()).saturating_sub(ready + u64::from((put as i32).max(0) as u32))
    }
}

impl SlabHead {
    /// The last slot that was ever handed out.
    pub fn last(&self) -> u32 {
        self.fresh.load().value() as u32
    }

    /// The first free slot of the stack; 0 none.
    pub fn top(&self) -> u32 {
        self.free.load().value() as u32
    }
}

/// The word that an exchange concerns.
fn word(head: &SlabHead, kind: WordExchange) -> &Head {
    if kind == WordExchange::Fresh { &head.fresh } else { &head.free }
}

/// The cache and ledger as stored in a lane.
fn held<T: Slot>(lane: &Lane) -> Settled {
    let cache = &lane.caches[T::SLAB];
    let slot = |place: usize| cache.slots[place].load(Ordering::Relaxed);
    // In a damaged region the count may be too large.
    let count = (cache.count.load(Ordering::Relaxed) as usize).min(CACHE_SLOTS);
    Settled {
        slots: core::array::from_fn(slot),
        count,
        ledger: lane.moving[T::SLAB].ledger.load(Ordering::Relaxed),
    }
}

/// Stores `settled` as a lane's cache and ledger, and clears the note of the exchange.
fn store<T: Slot>(lane: &Lane, settled: &Settled) {
    let cache = &lane.caches[T::SLAB];
    for (to, from) in cache.slots.iter().zip(settled.slots()) {
        to.store(*from, Ordering::Relaxed);
    }
    cache.count.store(settled.count as u32, Ordering::Release);
    let moving = &lane.moving[T::SLAB];
    moving.ledger.store(settled.ledger, Ordering::Release);
    moving.note.clear();
}

/// Whether a slot is in a lane's cache.
pub fn is_cached<T: Slot>(lane: &Lane, index: u32) -> bool {
    held::<T>(lane).slots().contains(&index)
}
