//! `SEEK_DATA` and `SEEK_HOLE` of lseek(2); [`crate::calls::lseek`] is the call itself.

use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::Region;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;

use crate::caller::task::Task;
use crate::content::map::{self, Map};

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
    let map = Map::of(inode);
    let end = size.div_ceil(PAGE_SIZE as u64);
    let mut index = offset / PAGE_SIZE as u64;
    while index < end {
        let piece = map::piece(region, map, index, end - index);
        if piece.page.is_some() == (wanted == Wanted::Data) {
            return Ok(offset.max(index * PAGE_SIZE as u64) as i64);
        }
        index += piece.len;
    }
    match wanted {
        Wanted::Data => Err(Errno::ENXIO),
        Wanted::Hole => Ok(size as i64),
    }
}
