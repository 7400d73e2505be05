//! The shared part of a slab: a list of free slots and the mark behind the last slot ever handed out, under a lock.
//!
//! Lanes come here once in [`BATCH`] times. Whoever dies inside leaves the slot that was on its way in
//! `Lane::moving`; the lock's next holder, or whoever buries the lane, sees where it stands and finishes the move.
//! Nothing but the lock's holder changes the list, so what is seen is certain.

use lp_abi::{Errno, Result};

use crate::ids::{LaneId, ProcessId};
use crate::lane::{CACHE_SLOTS, Lane, LaneCache};
use crate::lock::{Lanes, OwnerLock, Undertaker};
use crate::records::SlabHead;
use crate::region::Region;
use crate::slab::{BATCH, Slot};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Set in `Lane::moving` beside the first of a batch of slots that were never used.
const FRESH: u64 = 1 << 32;

// Relaxed throughout: the list is guarded by the lock, the cache and `moving` are the lane's own. What the dead have
// stored is ordered by their death. Release where a later store must not be seen without an earlier one.

impl<'r> Region<'r> {
    /// Fills a lane's empty cache.
    #[cold]
    pub(crate) fn refill_slow<T: Slot>(self, lane: &Lane) -> Result<()> {
        let held = self.depot::<T>(lane);
        let cache = &lane.caches[T::SLAB];
        let mut have = 0;
        while have < BATCH as u32 {
            let index = held.head.free.load(Ordering::Relaxed);
            if index == 0 {
                break;
            }
            let next = self.slot::<T>(index as u32).link().load(Ordering::Relaxed);
            held.moving.store(index, Ordering::Release);
            held.head.free.store(u64::from(next), Ordering::Release);
            let count = held.head.free_count.load(Ordering::Relaxed);
            held.head.free_count.store(count.saturating_sub(1), Ordering::Relaxed);
            cache.slots[have as usize].store(index as u32, Ordering::Release);
            have += 1;
            cache.count.store(have, Ordering::Release);
            held.moving.store(0, Ordering::Release);
        }
        if have == 0 { held.never_used::<T>(self, cache) } else { Ok(()) }
    }

    /// Makes room in a lane's full cache. The oldest go; the newest, warm in this core's cache, stay.
    #[cold]
    pub(crate) fn spill_slow<T: Slot>(self, lane: &Lane) {
        let held = self.depot::<T>(lane);
        let cache = &lane.caches[T::SLAB];
        for slot in 0..BATCH {
            // A damaged region's may say more than there are.
            let count = cache.count.load(Ordering::Relaxed).clamp(1, CACHE_SLOTS as u32) - 1;
            let index = cache.slots[slot].load(Ordering::Relaxed);
            let last = cache.slots[count as usize].load(Ordering::Relaxed);
            held.moving.store(u64::from(index), Ordering::Release);
            cache.slots[slot].store(last, Ordering::Release);
            cache.count.store(count, Ordering::Release);
            self.push_free::<T>(held.head, index);
            held.moving.store(0, Ordering::Release);
        }
    }

    /// Gives a slot straight to the shared part, through the calling thread's `lane`: one of a dead lane's.
    pub fn give_shared<T: Slot>(self, lane: &Lane, id: T::Id) {
        let held = self.depot::<T>(lane);
        held.moving.store(u64::from(id.into()), Ordering::Release);
        self.push_free::<T>(held.head, id.into());
        held.moving.store(0, Ordering::Release);
    }

    /// Finishes the move that the dead `lane` was in the middle of, if any. Called by whoever buries it.
    pub fn repair_slab<T: Slot>(self, lane: &Lane, dead: LaneId) {
        let moving = &self.lane(dead).moving[T::SLAB];
        if moving.load(Ordering::Relaxed) != 0 || self.header().slabs[T::SLAB].lock.holder() == dead {
            // Taking the lock from the dead repairs; another's takeover has done it.
            drop(self.depot::<T>(lane));
        }
    }

    fn depot<'l, T: Slot>(self, lane: &'l Lane) -> Held<'l>
    where
        'r: 'l,
    {
        let head = &self.header().slabs[T::SLAB];
        let me = LaneId(lane.id.load(Ordering::Relaxed));
        let process = ProcessId(lane.process.load(Ordering::Relaxed));
        let onlooker = Onlooker { region: self, process };
        head.lock.lock(me, &SlabUndertaker::<T> { onlooker, slab: core::marker::PhantomData });
        Held { head, moving: &lane.moving[T::SLAB] }
    }

    fn push_free<T: Slot>(self, head: &SlabHead, index: u32) {
        self.slot::<T>(index).link().store(head.free.load(Ordering::Relaxed) as u32, Ordering::Release);
        head.free.store(u64::from(index), Ordering::Release);
        head.free_count.store(head.free_count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Slots of a slab that are in use now, those that lanes hold ready not counted.
    pub fn in_use<T: Slot>(self) -> u64 {
        let head = &self.header().slabs[T::SLAB];
        let lanes = 1..self.header().lane_limit.load(Ordering::Relaxed);
        let cached = lanes.map(|lane| self.lane(LaneId(lane)).caches[T::SLAB].count.load(Ordering::Relaxed));
        let ready = cached.map(u64::from).sum::<u64>() + head.free_count.load(Ordering::Relaxed);
        head.fresh.load(Ordering::Relaxed).saturating_sub(ready)
    }

    /// Slots on the list of a slab. The caller holds its lock.
    fn count_free<T: Slot>(self, head: &SlabHead) -> u64 {
        let mut next = head.free.load(Ordering::Relaxed) as u32;
        let mut count = 0;
        while next != 0 && count < T::SLOTS as u64 {
            count += 1;
            next = self.slot::<T>(next).link().load(Ordering::Relaxed);
        }
        count
    }
}

/// The shared part of one slab, locked.
struct Held<'r> {
    head: &'r SlabHead,
    moving: &'r AtomicU64,
}

impl Held<'_> {
    /// Hands out slots that were never used.
    fn never_used<T: Slot>(&self, region: Region<'_>, cache: &LaneCache) -> Result<()> {
        // Slot 0 names nothing, so a fresh slab starts at 1.
        let first = self.head.fresh.load(Ordering::Relaxed) as usize + 1;
        let end = (first + BATCH).min(T::SLOTS);
        if first >= end {
            return Err(Errno::ENOSPC);
        }
        region.back_growth(T::OFFSET, first * size_of::<T>(), end * size_of::<T>())?;
        self.moving.store(FRESH | first as u64, Ordering::Release);
        for (slot, index) in (first..end).rev().enumerate() {
            cache.slots[slot].store(index as u32, Ordering::Relaxed);
        }
        cache.count.store((end - first) as u32, Ordering::Release);
        self.head.fresh.store(end as u64 - 1, Ordering::Release);
        self.moving.store(0, Ordering::Release);
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.head.lock.unlock();
    }
}

/// The region's lanes as a process sees them.
pub struct Onlooker<'r> {
    /// The region.
    pub region: Region<'r>,
    /// The process, which lives.
    pub process: ProcessId,
}

impl Lanes for Onlooker<'_> {
    fn is_dead(&self, lane: LaneId) -> bool {
        self.region.lane_is_dead(lane, self.process)
    }

    fn mark(&self, lane: LaneId) -> &AtomicU32 {
        &self.region.lane(lane).holding
    }

    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>) {
        let name = lock.map_or(0, |lock| self.region.offset_of(lock));
        self.region.lane(me).waits_for.store(name, Ordering::Relaxed); // Relaxed: ordered by the barriers of the lock.
    }

    fn is_awaited(&self, lock: &OwnerLock) -> bool {
        let name = self.region.offset_of(lock);
        // Relaxed: as above.
        self.region.lanes().any(|lane| self.region.lane(lane).waits_for.load(Ordering::Relaxed) == name)
    }
}

/// Takes over a slab's lock from a dead lane.
struct SlabUndertaker<'r, T> {
    onlooker: Onlooker<'r>,
    slab: core::marker::PhantomData<T>,
}

impl<T: Slot> Undertaker for SlabUndertaker<'_, T> {
    fn lanes(&self) -> &dyn Lanes {
        &self.onlooker
    }

    fn repair(&self, lane: LaneId) {
        let region = self.onlooker.region;
        let head = &region.header().slabs[T::SLAB];
        let dead = region.lane(lane);
        let cache = &dead.caches[T::SLAB];
        let moving = dead.moving[T::SLAB].load(Ordering::Relaxed);
        let index = moving as u32;
        forget_twin(cache);
        if moving & FRESH != 0 {
            let end = (index as usize + BATCH).min(T::SLOTS);
            if cached(cache, index) {
                head.fresh.store(end as u64 - 1, Ordering::Relaxed);
            }
        } else if index != 0 && !cached(cache, index) && head.free.load(Ordering::Relaxed) != u64::from(index)
        {
            region.push_free::<T>(head, index);
        }
        head.free_count.store(region.count_free::<T>(head), Ordering::Relaxed);
        dead.moving[T::SLAB].store(0, Ordering::Release);
    }
}

/// Whether a cache holds a slot.
pub fn cached(cache: &LaneCache, index: u32) -> bool {
    let count = (cache.count.load(Ordering::Relaxed) as usize).min(CACHE_SLOTS);
    cache.slots[..count].iter().any(|slot| slot.load(Ordering::Relaxed) == index)
}

/// A death between the two stores that move the last slot of a cache to another place leaves it in both.
fn forget_twin(cache: &LaneCache) {
    let count = (cache.count.load(Ordering::Relaxed) as usize).min(CACHE_SLOTS);
    let Some(last) = count.checked_sub(1) else { return };
    let index = cache.slots[last].load(Ordering::Relaxed);
    if cache.slots[..last].iter().any(|slot| slot.load(Ordering::Relaxed) == index) {
        cache.count.store(last as u32, Ordering::Release);
    }
}
