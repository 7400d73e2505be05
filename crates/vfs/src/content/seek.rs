//! `SEEK_DATA` and `SEEK_HOLE` of lseek(2); [`crate::calls::lseek`] is the call itself.

use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{PageId, Region};

use crate::caller::task::Task;
use crate::content::map::{self, Extent, Map};
use crate::content::owner;

/// The first offset that has a page, at or after `offset`.
///
/// # Errors
/// `ENXIO` if there is none, or `offset` is not inside the file.
pub(crate) fn data(task: &Task, inode: &Inode, offset: i64) -> Result<i64> {
    find(task, inode, offset, Wanted::Data)
}

/// The first offset that has no page, at or after `offset`. The end of the file counts as a hole.
///
/// # Errors
/// `ENXIO` if `offset` is not inside the file.
pub(crate) fn hole(task: &Task, inode: &Inode, offset: i64) -> Result<i64> {
    find(task, inode, offset, Wanted::Hole)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Data,
    Hole,
}

fn find(task: &Task, inode: &Inode, offset: i64, wanted: Wanted) -> Result<i64> {
    // As in shmem_file_llseek and mapping_seek_hole_data, a negative offset is ENXIO too.
    let found = inode.data_seq.snapshot(|| search(task.region, inode, offset as u64, wanted));
    if offset < 0 { Err(Errno::ENXIO) } else { found }
}

fn search(region: Region, inode: &Inode, offset: u64, wanted: Wanted) -> Result<i64> {
    let size = inode.size.load(Relaxed); // Relaxed: ordered and validated by `data_seq`.
    if offset >= size {
        return Err(Errno::ENXIO);
    }
    let has_space = inode.flags.load(Relaxed) & inode_flags::SPACE != 0; // Relaxed: read as seen.
    let map = Map::of(inode);
    let end = size.div_ceil(PAGE_SIZE as u64);
    let mut index = offset / PAGE_SIZE as u64;
    while index < end {
        let piece = map::piece(region, map, index, end - index);
        let is_data = piece.page.is_some();
        let (is_data, len) = match is_data && has_space {
            true => written(region, piece),
            false => (is_data, piece.len),
        };
        if is_data == (wanted == Wanted::Data) {
            return Ok(offset.max(index * PAGE_SIZE as u64) as i64);
        }
        index += len;
    }
    match wanted {
        Wanted::Data => Err(Errno::ENXIO),
        Wanted::Hole => Ok(size as i64),
    }
}

/// Whether the first page of a piece was written, and how many pages from there on are alike. A page of space
/// may have been written through a mapping: one that holds only zeros counts as never written.
fn written(region: Region, piece: Extent) -> (bool, u64) {
    let is_written = |step: u64| {
        let page = PageId(piece.page.0 + step as u32);
        !owner::is_space(region, page) || !is_zero(region, page)
    };
    let first = is_written(0);
    (first, (1..piece.len).find(|step| is_written(*step) != first).unwrap_or(piece.len))
}

fn is_zero(region: Region, page: PageId) -> bool {
    // Relaxed: validated by `data_seq`; stores through a mapping are not ordered with anything.
    region.page_words(page).iter().all(|word| word.load(Relaxed) == 0)
}
