//! [`Extents`]: the parts of a region's file that contain data.
//!
//! A region is sparse, and reading a hole of shared memory fills it. A hole reads as zeros, so passes over
//! slabs skip it, and a damaged count does not make the checker touch gigabytes.

use lp_region::Region;
use lp_region::slab::Slot;

/// Byte ranges of the file that are not holes, in order.
pub(crate) struct Extents(Vec<(u64, u64)>);

impl Extents {
    /// The extents of a region. Private memory has no file, so all of it counts.
    pub(crate) fn of(region: Region) -> Extents {
        let length = region.length() as u64;
        if !region.has_file() {
            return Extents(vec![(0, length)]);
        }
        let seek = |from: u64, whence| {
            // SAFETY: moves the descriptor's position, which nobody uses.
            let at = unsafe { libc::lseek(region.fd().raw(), from as i64, whence) };
            u64::try_from(at).ok()
        };
        let mut extents = Vec::new();
        let mut at = 0;
        while let Some(start) = seek(at, libc::SEEK_DATA).filter(|start| *start < length) {
            let end = seek(start, libc::SEEK_HOLE).unwrap_or(length).min(length);
            extents.push((start, end));
            at = end.max(start + 1);
        }
        Extents(extents)
    }

    /// Of `count` records of `size` bytes from `offset` on, those that are at least partly in the extents.
    pub(crate) fn records(&self, offset: usize, size: usize, count: usize) -> impl Iterator<Item = u32> + '_ {
        let (first, last) = (offset as u64, (offset + size * count) as u64);
        let ranges = self.0.iter().filter(move |(start, end)| *start < last && *end > first);
        let mut next = 0;
        ranges.flat_map(move |(start, end)| {
            let from = (start.max(&first) - first) / size as u64;
            let to = (end.min(&last) - first).div_ceil(size as u64);
            let from = from.max(next);
            next = to.max(next);
            (from..to).map(|index| index as u32)
        })
    }

    /// The slots of a slab that may contain data.
    pub(crate) fn slots<T: Slot>(&self) -> impl Iterator<Item = u32> + '_ {
        self.records(T::OFFSET, size_of::<T>(), T::SLOTS).filter(|index| *index != 0)
    }

    /// The last of [`Extents::slots`]; 0 if there are none.
    pub(crate) fn last<T: Slot>(&self) -> u32 {
        let (first, last) = (T::OFFSET as u64, (T::OFFSET + size_of::<T>() * T::SLOTS) as u64);
        let range = self.0.iter().rev().find(|(start, end)| *start < last && *end > first);
        range.map_or(0, |(_, end)| ((end.min(&last) - first).div_ceil(size_of::<T>() as u64) - 1) as u32)
    }

    /// Whether an offset may contain data.
    pub(crate) fn has(&self, offset: u64) -> bool {
        let after = self.0.partition_point(|(_, end)| *end <= offset);
        self.0.get(after).is_some_and(|(start, _)| *start <= offset)
    }
}
