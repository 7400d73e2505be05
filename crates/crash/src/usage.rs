//! What a region has handed out: slots by kind, and pages.

use lp_region::records::{Dirent, Inode, LockRecord, LongName, Mapping, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{LaneId, Region};
use lp_vfs::page;

/// Slots and pages in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Pages of data.
    pub pages: u64,
    /// Inodes.
    pub inodes: u64,
    /// Directory entries.
    pub dirents: u64,
    /// Long names.
    pub names: u64,
    /// Open files.
    pub files: u64,
    /// Lock records.
    pub locks: u64,
    /// Mapping records.
    pub mappings: u64,
}

impl Usage {
    /// Counts what is neither fresh, nor on the shared stacks, nor in a lane's cache. Nobody else is at work.
    pub fn of(region: Region) -> Usage {
        let pages = region.header().data_pages.load(Ordering::Relaxed) - page::free_count(region);
        Usage {
            pages,
            inodes: slots::<Inode>(region),
            dirents: slots::<Dirent>(region),
            names: slots::<LongName>(region),
            files: slots::<OpenFile>(region),
            locks: slots::<LockRecord>(region),
            mappings: slots::<Mapping>(region),
        }
    }
}

fn slots<T: Slot>(region: Region) -> u64 {
    let head = &region.header().slabs[T::SLAB];
    let fresh = head.fresh.load(Ordering::Relaxed);
    let mut free = 0;
    let mut next = head.free.load(Ordering::Relaxed) as u32;
    while next != 0 {
        free += 1;
        assert!(free <= fresh, "the free list of slab {} is a ring", T::SLAB);
        next = region.slot::<T>(next).link().load(Ordering::Relaxed);
    }
    let lanes = region.header().lane_limit.load(Ordering::Relaxed);
    let cached: u64 = (1..lanes)
        .map(|lane| u64::from(region.lane(LaneId(lane)).caches[T::SLAB].count.load(Ordering::Relaxed)))
        .sum();
    fresh - free - cached
}
