//! Slots: allocating and freeing records of the slabs.
//!
//! A lane allocates from and frees to its own cache with plain stores; it uses the shared part,
//! [`crate::depot`], once in [`BATCH`] operations. A slot that was allocated and is not linked in yet is
//! named in the lane (`taken`), so a death leaks nothing: the reaper puts `taken` into the cache, which the
//! lane's next owner inherits. Source: Bonwick and Adams, "Magazines and Vmem" (2001).

use lp_abi::Result;

use crate::custody::Custody;
use crate::ids::*;
use crate::lane::{CACHE_SLOTS, Lane};
use crate::layout as at;
use crate::records::*;
use crate::region::Region;
use crate::sync::{AtomicU32, Ordering};

/// Slots moved between a lane and the shared part at a time.
pub const BATCH: usize = 15;

/// A kind of record that is allocated and freed slot by slot.
pub trait Slot: Sized {
    /// The handle type.
    type Id: Copy + Into<u32>;
    /// Number of the slab, an index of [`Header::slabs`].
    const SLAB: usize;
    /// Where the slots are.
    const PLACE: at::Slab;
    /// Number of slots, a power of two.
    const SLOTS: usize = Self::PLACE.slots;

    /// The word that links free slots.
    fn link(&self) -> &AtomicU32;

    /// The handle with this index.
    fn id(index: u32) -> Self::Id;
}

macro_rules! slots {
    ($($record:ident $id:ident $number:literal $place:ident;)*) => {$(
        impl From<$id> for u32 {
            fn from(id: $id) -> u32 {
                id.0
            }
        }
        impl Slot for $record {
            type Id = $id;
            const SLAB: usize = $number;
            const PLACE: at::Slab = at::$place;
            fn link(&self) -> &AtomicU32 {
                &self.link
            }
            fn id(index: u32) -> $id {
                $id(index)
            }
        }
    )*};
}

slots! {
    OpenFile FileId 0 FILE_SLAB;
    Inode InodeId 1 INODE_SLAB;
    Dirent DirentId 2 DIRENT_SLAB;
    LockRecord LockId 4 LOCK_SLAB;
    Mapping MappingId 5 MAPPING_SLAB;
}

/// A record that is retired to a lane's chain before it is freed.
pub trait Retired: Slot {
    /// The lane that keeps it.
    fn custody(&self) -> &Custody;
    /// Its generation, incremented when it is freed.
    fn generation(&self) -> &AtomicU32;
}

macro_rules! retired {
    ($($record:ident)*) => {$(
        impl Retired for $record {
            fn custody(&self) -> &Custody {
                &self.custody
            }
            fn generation(&self) -> &AtomicU32 {
                &self.generation
            }
        }
    )*};
}

retired! { OpenFile Inode }

// They index arrays of a lane that have one word for each of the two.
const _: () = assert!(OpenFile::SLAB < 2 && Inode::SLAB < 2);

impl From<OverflowId> for u32 {
    fn from(id: OverflowId) -> u32 {
        id.0
    }
}

impl Slot for Bucket {
    type Id = OverflowId;
    const SLAB: usize = 3;
    const PLACE: at::Slab = at::OVERFLOW_SLAB;
    fn link(&self) -> &AtomicU32 {
        &self.next
    }
    fn id(index: u32) -> OverflowId {
        OverflowId(index)
    }
}

impl From<NameId> for u32 {
    fn from(id: NameId) -> u32 {
        id.0
    }
}

impl Slot for LongName {
    type Id = NameId;
    const SLAB: usize = 6;
    const PLACE: at::Slab = at::NAME_SLAB;
    fn link(&self) -> &AtomicU32 {
        let first: *const _ = &self.bytes;
        // SAFETY: the record is 64-byte aligned and 256 bytes long, and while it is free only the slab uses
        // it.
        unsafe { &*first.cast::<AtomicU32>() }
    }
    fn id(index: u32) -> NameId {
        NameId(index)
    }
}

impl Region<'_> {
    /// Allocates a free slot, which stays named in `lane.taken` until [`Region::settle`].
    ///
    /// # Errors
    /// `ENOSPC` when the slab is exhausted.
    #[inline(always)]
    pub fn take<T: Slot>(self, lane: &Lane) -> Result<T::Id> {
        match self.take_cached::<T>(lane) {
            Some(id) => Ok(id),
            None => self.take_slow::<T>(lane),
        }
    }

    /// [`Region::take`] from the lane's cache only.
    #[inline(always)]
    pub fn take_cached<T: Slot>(self, lane: &Lane) -> Option<T::Id> {
        let cache = &lane.caches[T::SLAB];
        // Relaxed throughout: only this lane writes its cache.
        let count = cache.count.load(Ordering::Relaxed);
        let slot = cache.slots.get((count as usize).wrapping_sub(1))?;
        let index = slot.load(Ordering::Relaxed);
        lane.taken[T::SLAB].store(index, Ordering::Relaxed);
        // Release: a reaper that sees the lower count sees the slot named in `taken`.
        cache.count.store(count - 1, Ordering::Release);
        Some(T::id(index))
    }

    /// [`Region::take`] from a cache that is empty.
    #[cold]
    #[inline(never)]
    fn take_slow<T: Slot>(self, lane: &Lane) -> Result<T::Id> {
        self.refill_slow::<T>(lane)?;
        self.take::<T>(lane)
    }

    /// All slots that were ever handed out, whether in use or not.
    pub fn slots<T: Slot>(self) -> impl Iterator<Item = T::Id> {
        (1..=self.header().slabs[T::SLAB].last()).map(T::id)
    }

    /// Records that the slot last allocated is linked in.
    #[inline(always)]
    pub fn settle<T: Slot>(self, lane: &Lane) {
        lane.taken[T::SLAB].store(0, Ordering::Release);
    }

    /// Frees a slot. Nothing may name it any more except readers that check its generation.
    #[inline(always)]
    pub fn give<T: Slot>(self, lane: &Lane, id: T::Id) {
        let cache = &lane.caches[T::SLAB];
        let mut count = cache.count.load(Ordering::Relaxed); // Relaxed: only this lane writes its cache.
        while count as usize >= CACHE_SLOTS {
            self.spill_slow::<T>(lane);
            count = cache.count.load(Ordering::Relaxed);
        }
        cache.slots[count as usize].store(id.into(), Ordering::Relaxed);
        cache.count.store(count + 1, Ordering::Release);
    }
}
