//! Names the futexes of a region: the lock that an actor waits for, as `docs/locking.md` calls it.

use lp_region::layout as at;
use lp_region::sync::Ordering;
use lp_region::{InodeId, Region};

/// The name of the object at `address`, where the region is mapped; 0 is a pause between two checks.
pub(crate) fn of(region: Region<'static>, address: u64) -> &'static str {
    if address == 0 {
        return "pause";
    }
    let offset = address.wrapping_sub(region.base() as u64);
    if region.offset_of(&region.header().split_lock) == offset {
        return "split";
    }
    let offset = offset as usize;
    let within = |slab: at::Slab| slab.all().contains(&offset);
    if within(at::INODE_SLAB) {
        let id = InodeId(at::INODE_SLAB.slot_at(offset) as u32);
        // Relaxed: one party acts at a time.
        let mode = region.inode(id).mode.load(Ordering::Relaxed);
        return if mode & libc::S_IFMT == libc::S_IFDIR { "directory" } else { "file" };
    }
    if within(at::LANE_SLAB) {
        let in_lane = (offset - at::LANES_AT) % at::LANE_SIZE;
        return if in_lane < at::PROCESS_IN_LANE { "burial" } else { "table" };
    }
    let records = [("open-file", at::FILE_SLAB), ("record-lock", at::LOCK_SLAB)];
    let found = records.into_iter().find(|(_, slab)| within(*slab));
    found.map_or("other", |(name, ..)| name)
}
