//! Pages without memory in the region's file: those that nobody has touched yet, and those that a truncation
//! has discarded.
//!
//! The kernel gives such a page memory when a process touches it in its mapping of the region. In a mapping
//! of a file it raises a signal instead, if the door has asked for that. So a truncation reaches the mappings
//! of other processes, which it cannot change: it discards the memory of the pages behind the new end. A page
//! that belongs to a file and is mapped must therefore have memory, or the kernel fails with `EFAULT` where
//! it uses the page on a program's behalf. Pages that were written have some; [`inode_flags::BARE`] and
//! [`inode_flags::SPACE`] say that others may not.
//!
//! A reader that began before a truncation may touch a page after it, and discard what it has read. The page
//! has memory then, and a mapping shows zeros.

use lp_abi::linux::{__NR_lseek, __NR_madvise, MADV_POPULATE_WRITE, SEEK_DATA, SEEK_HOLE};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{PageId, Region};

use crate::caller::task::Task;
use crate::content::map::{self, Map};

/// Most pages that are given memory before somebody touches them.
const AHEAD: u64 = 512;
/// The same where a file grows over pages that a truncation has discarded.
const GROWN: u64 = 2048;

/// Whether pages can be without memory: in a region's file that is not in memory they have space instead.
pub(crate) fn is_possible(region: Region) -> bool {
    region.has_file() && region.header().in_file.load(Relaxed) == 0 // Relaxed: immutable while in use.
}

/// Whether the first of consecutive pages have memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Memory {
    /// They have.
    Present,
    /// They have none.
    Absent,
}

/// Whether the first of `len` consecutive pages has memory, and how many behind it are like it.
///
/// # Errors
/// Those of lseek(2).
pub(crate) fn look(region: Region, first: PageId, len: u64) -> Result<(Memory, u64)> {
    let start = region.page_offset(first).ok_or(Errno::EINVAL)?;
    // Nobody uses the position. SAFETY: no pointer is passed.
    let seek = |whence| unsafe { lp_abi::syscall!(__NR_lseek, region.fd(), start, whence) };
    let pages = |end: usize| ((end.saturating_sub(start) / PAGE_SIZE) as u64).min(len);
    match pages(seek(SEEK_HOLE)?) {
        0 => match seek(SEEK_DATA) {
            Ok(end) => Ok((Memory::Absent, pages(end).max(1))),
            Err(Errno::ENXIO) => Ok((Memory::Absent, len)),
            Err(errno) => Err(errno),
        },
        present => Ok((Memory::Present, present)),
    }
}

/// Gives consecutive pages memory. The caller must hold the lock of the file that has them.
///
/// # Errors
/// Those of madvise(2).
pub(crate) fn give(region: Region, first: PageId, len: u64) -> Result<()> {
    loop {
        let (at, bytes) = (region.page(first), len as usize * PAGE_SIZE);
        // SAFETY: populates pages of the region and changes no byte.
        return match unsafe { lp_abi::syscall!(__NR_madvise, at, bytes, MADV_POPULATE_WRITE) } {
            Err(Errno::EINTR | Errno::EAGAIN) => continue,
            done => done.map(drop),
        };
    }
}

/// Touches a page, which gives it memory.
pub(crate) fn read(region: Region, page: PageId) {
    // SAFETY: a page of the region, which others may change at any time.
    unsafe { region.page(page).read_volatile() };
}

/// Gives the pages that a file has in `first..end` memory, if they are few. Returns whether they have it. The
/// caller must hold the lock.
pub(crate) fn touch(region: Region, inode: &Inode, first: u64, end: u64) -> bool {
    !is_possible(region) || end.saturating_sub(first) <= AHEAD && give_all(region, inode, first, end, AHEAD)
}

/// After a file has grown from `old` bytes to `new`, or if it has not: gives memory to pages that truncations
/// have discarded and that belong to the file again, as many as one call may cost. The caller must hold the
/// lock.
#[inline]
pub(crate) fn grown(task: &Task, inode: &Inode, old: u64, new: u64) {
    if new > old && inode.flags.load(Relaxed) & inode_flags::BARE != 0 {
        grown_slow(task, inode, old, new);
    }
}

#[cold]
fn grown_slow(task: &Task, inode: &Inode, old: u64, new: u64) {
    let page = PAGE_SIZE as u64;
    let end = new.div_ceil(page).min(Map::of(inode).span());
    if is_possible(task.region) {
        give_all(task.region, inode, old.div_ceil(page), end, GROWN);
    }
}

/// Gives up to `most` of the pages that a file has in `first..end` memory. Returns whether all have it.
fn give_all(region: Region, inode: &Inode, first: u64, end: u64, most: u64) -> bool {
    let (mut index, mut left) = (first, most);
    while index < end {
        let piece = map::piece(region, Map::of(inode), index, end - index);
        if piece.page.is_some() {
            let len = piece.len.min(left);
            if len == 0 || give(region, piece.page, len).is_err() || len < piece.len {
                return false;
            }
            left -= len;
        }
        index += piece.len;
    }
    true
}
