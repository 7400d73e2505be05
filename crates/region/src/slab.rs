//! Slots: taking and giving back records of the slabs.
//!
//! A lane takes from its own cache and gives back to it with plain stores; it goes to the shared part,
//! [`crate::depot`], once in [`BATCH`] times. A slot that was taken and is not linked in yet is named in the
//! lane (`taken`), so a death leaks nothing: the reaper puts `taken` into the cache, which the lane's next
//! owner has. Source: Bonwick and Adams, "Magazines and Vmem" (2001).

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

/// A kind of record that is taken and given back slot by slot.
pub trait Slot: Sized {
    /// The handle type.
    type Id: Copy + Into<u32>;
    /// Number of the slab, an index of [`Header::slabs`].
    const SLAB: usize;
    /// Where it lies.
    const OFFSET: usize;
    /// Slots it has, a power of two.
    const SLOTS: usize;

    /// The word that links free slots.
    fn link(&self) -> &AtomicU32;

    /// The handle with this index.
    fn id(index: u32) -> Self::Id;
}

macro_rules! slots {
    ($($record:ident $id:ident $number:literal $offset:ident $slots:ident;)*) => {$(
        impl From<$id> for u32 {
            fn from(id: $id) -> u32 {
                id.0
            }
        }
        impl Slot for $record {
            type Id = $id;
            const SLAB: usize = $number;
            const OFFSET: usize = at::$offset;
            const SLOTS: usize = at::$slots;
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
    OpenFile FileId 0 FILES_AT FILES;
    Inode InodeId 1 INODES_AT INODES;
    Dirent DirentId 2 DIRENTS_AT DIRENTS;
    LockRecord LockId 4 LOCKS_AT LOCKS;
    Mapping MappingId 5 MAPPINGS_AT MAPPINGS;
}

/// A record that is retired to a lane's chain before it is freed.
pub trait Retired: Slot {
    /// Who keeps it.
    fn custody(&self) -> &Custody;
    /// Its generation: grows when it is freed.
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

// They index the arrays of a lane that have a word for each of the two.
const _: () = assert!(OpenFile::SLAB < 2 && Inode::SLAB < 2);

impl From<OverflowId> for u32 {
    fn from(id: OverflowId) -> u32 {
        id.0
    }
}

impl Slot for Bucket {
    type Id = OverflowId;
    const SLAB: usize = 3;
    const OFFSET: usize = at::OVERFLOWS_AT;
    const SLOTS: usize = at::OVERFLOWS;
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
    const OFFSET: usize = at::NAMES_AT;
    const SLOTS: usize = at::NAMES;
    fn link(&self) -> &AtomicU32 {
        let first: *const _ = &self.bytes;
        // SAFETY: the record is 64-byte aligned and 256 bytes long, and while it is free only the slab uses it.
        unsafe { &*first.cast::<AtomicU32>() }
    }
    fn id(index: u32) -> NameId {
        NameId(index)
    }
}

impl Region<'_> {
    /// Takes a free slot; it stays named in `lane.taken` until [`Region::settle`].
    ///
    /// # Errors
    /// `ENOSPC` when the slab is used up.
    #[inline]
    pub fn take<T: Slot>(self, lane: &Lane) -> Result<T::Id> {
        let cache = &lane.caches[T::SLAB];
        let count = cache.count.load(Ordering::Relaxed); // Relaxed throughout: only this lane writes its cache.
        if count == 0 {
            self.refill_slow::<T>(lane)?;
            return self.take::<T>(lane);
        }
        let index = cache.slots[(count as usize - 1).min(CACHE_SLOTS - 1)].load(Ordering::Relaxed);
        lane.taken[T::SLAB].store(index, Ordering::Relaxed);
        // Release: the reaper that sees the lower count sees the slot named in `taken`.
        cache.count.store(count - 1, Ordering::Release);
        Ok(T::id(index))
    }

    /// Says that the slot last taken is linked in: the lane forgets it.
    #[inline]
    pub fn settle<T: Slot>(self, lane: &Lane) {
        lane.taken[T::SLAB].store(0, Ordering::Release);
    }

    /// Gives a slot back. Nothing may name it any more but readers that check its generation.
    #[inline]
    pub fn give<T: Slot>(self, lane: &Lane, id: T::Id) {
        let cache = &lane.caches[T::SLAB];
        let count = cache.count.load(Ordering::Relaxed); // Relaxed: only this lane writes its cache.
        if count as usize >= CACHE_SLOTS {
            self.spill_slow::<T>(lane);
            return self.give::<T>(lane, id);
        }
        cache.slots[count as usize].store(id.into(), Ordering::Relaxed);
        cache.count.store(count + 1, Ordering::Release);
    }
}
