//! [`Extents`]: the parts of a region's file that contain data.
//!
//! A region is sparse, and reading a hole of shared memory fills it. A hole reads as zeros, so passes over
//! slabs skip it, and a damaged count does not make the checker touch gigabytes.

use std::ops::Range;

use lp_region::Region;
use lp_region::layout::Slab;
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

    /// The slots of a slab that are at least partly in the extents, in order.
    pub(crate) fn records(&self, slab: Slab) -> impl Iterator<Item = u32> + use<> {
        let mut ranges: Vec<Range<usize>> = self.parts(slab).map(|part| slab.slots_in(part)).collect();
        ranges.sort_by_key(|range| range.start);
        let mut next = 0;
        ranges.into_iter().flat_map(move |range| {
            let from = range.start.max(next);
            next = range.end.max(next);
            (from..range.end).map(|index| index as u32)
        })
    }

    /// The slots of a slab that may contain data.
    pub(crate) fn slots<T: Slot>(&self) -> impl Iterator<Item = u32> + use<T> {
        self.records(T::PLACE).filter(|index| *index != 0)
    }

    /// The last of [`Extents::slots`]; 0 if there are none.
    pub(crate) fn last<T: Slot>(&self) -> u32 {
        let ends = self.parts(T::PLACE).map(|part| T::PLACE.slots_in(part).end as u32 - 1);
        ends.max().unwrap_or(0)
    }

    /// The parts of the extents that are a slab's.
    fn parts(&self, slab: Slab) -> impl Iterator<Item = Range<usize>> + '_ {
        let cut = |all: Range<usize>| {
            let cut =
                move |(start, end): &(u64, u64)| all.start.max(*start as usize)..all.end.min(*end as usize);
            self.0.iter().map(cut)
        };
        slab.whole().into_iter().flat_map(cut).filter(|part| !part.is_empty())
    }

    /// Whether an offset may contain data.
    pub(crate) fn has(&self, offset: u64) -> bool {
        let after = self.0.partition_point(|(_, end)| *end <= offset);
        self.0.get(after).is_some_and(|(start, _)| *start <= offset)
    }
}
