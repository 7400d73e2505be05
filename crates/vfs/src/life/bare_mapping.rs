//! Support for mappings in which the kernel raises a signal where a page has no memory
//! (`crate::content::bare`).

use lp_abi::PAGE_SIZE;
use lp_region::records::inode_flags;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeRef, PageId, Region};

use crate::caller::task::Task;
use crate::content::bare::{self, Memory};
use crate::content::map::{self, Map};
use crate::inodes::inode;

/// Pages that are looked at under the lock at a time.
const STEP: u64 = 512;
/// Pages without memory, one after another, that get some because pages beside them have it.
const BETWEEN: u64 = STEP / 2;

/// Whether a truncation takes the memory of pages.
pub fn is_possible(region: Region) -> bool {
    bare::is_possible(region)
}

/// Whether pages of a file that the process maps may be without memory.
pub fn may_be(task: &Task, of: InodeRef) -> bool {
    // Relaxed: set before such a page is linked in or loses its memory.
    let flags = task.region.inode(of.id).flags.load(Relaxed);
    flags & (inode_flags::BARE | inode_flags::SPACE) != 0
}

/// What is at an index of a file.
enum Found {
    /// That many pages that have memory, or none because they are behind the end.
    Pages(u64),
    /// A hole, or pages of the file without memory: that many.
    Gap(u64),
}

/// Calls `visit` with the offset and the length of each part of `offset..offset + bytes` in which no page of
/// the file is without memory. Where only some pages are, they get it.
pub fn each_part(task: &Task, of: InodeRef, offset: u64, bytes: usize, visit: &mut dyn FnMut(u64, usize)) {
    let page = PAGE_SIZE as u64;
    let (mut index, end) = (offset / page, (offset + bytes as u64).div_ceil(page));
    let mut first = index;
    let mut ended = |first: u64, index: u64| {
        if first < index {
            visit(first * page, ((index - first) * page) as usize);
        }
    };
    while index < end {
        match find(task, of, index, end - index) {
            Found::Pages(len) => index += len,
            Found::Gap(len) => {
                ended(first, index);
                index += len;
                first = index;
            }
        }
    }
    ended(first, index);
}

/// What is at `index`, up to `most` pages.
fn find(task: &Task, of: InodeRef, index: u64, most: u64) -> Found {
    let _locked = inode::lock(task, of.id);
    let Some((first, len)) = piece(task, of, index, most.min(STEP)) else { return Found::Pages(most) };
    if first.is_none() {
        return Found::Gap(len);
    }
    match bare::look(task.region, first, len) {
        Ok((Memory::Present, len)) => Found::Pages(len),
        Ok((Memory::Absent, len)) if len <= BETWEEN && bare::give(task.region, first, len).is_ok() => {
            Found::Pages(len)
        }
        Ok((Memory::Absent, len)) => Found::Gap(len),
        Err(_) => Found::Gap(1),
    }
}

/// The consecutive pages at `index`, or the length of a hole; `None` beyond the end. The caller must hold the
/// lock.
fn piece(task: &Task, of: InodeRef, index: u64, most: u64) -> Option<(PageId, u64)> {
    let inode = task.region.inode(of.id);
    let end = inode.size.load(Relaxed).div_ceil(PAGE_SIZE as u64); // Relaxed: under the lock.
    let most = most.min(end.saturating_sub(index));
    if most == 0 {
        return None;
    }
    let piece = map::piece(task.region, Map::of(inode), index, most);
    Some((piece.page, piece.len))
}

/// After a fault at an offset of a file: gives memory to the page there, and to some behind it, if it has
/// none and belongs to the file. Returns whether that was so.
pub fn repair(task: &Task, of: InodeRef, offset: u64) -> bool {
    const MOST: u64 = 64;
    let _locked = inode::lock(task, of.id);
    let Some((first, len)) = piece(task, of, offset / PAGE_SIZE as u64, MOST) else { return false };
    if first.is_none() {
        return false;
    }
    match bare::look(task.region, first, len) {
        Ok((Memory::Absent, len)) => bare::give(task.region, first, len).is_ok(),
        Ok((Memory::Present, _)) => false,
        // A limited process makes no calls.
        Err(_) => {
            bare::read(task.region, first);
            false
        }
    }
}
