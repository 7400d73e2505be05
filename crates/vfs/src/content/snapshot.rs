//! Copying a consistent snapshot of content, without a lock.
//!
//! Bytes and size are copied under `data_seq` and validated. If a change that does not end (its writer is
//! stopped, or writes a gigabyte) keeps the count odd, a reader takes what is there, like Linux: each page as
//! it was at some moment while the map named it.

use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserSlice};
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::sync::{acquire_fence, pause, spin};
use lp_region::{PageId, Region};

use crate::caller::below;
use crate::content::buffer::{self, Buffer, Single};
use crate::content::bulk::Direction;
use crate::content::map::{self, Map};

/// Checks of an odd count before a reader sleeps between them.
const SPINS: u32 = 2000;
/// Sleeps, of at least 50 us, before a reader assumes that the change under way is stopped.
const PAUSES: u32 = 100;
/// Snapshots tried before a reader falls back to page by page.
const TRIES: u32 = 64;
/// Bytes that these copy in all: a long one is tried less often.
const COPIED: u64 = 4 << 20;

/// What missing pages of a file are whose content is still to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    /// [`below::MISSING`].
    Content,
    /// Holes: what there is has been taken.
    Holes,
}

/// Copies content under `data_seq`. Fails with `EFAULT` if no byte could be copied, and with
/// [`below::MISSING`] if content is still to be taken.
pub(crate) fn snapshot<B: Buffer>(
    region: Region,
    inode: &Inode,
    to: B,
    len: usize,
    offset: u64,
) -> Result<usize> {
    snapshot_of(region, inode, to, (len, offset), Missing::Content)
}

/// [`snapshot`] of a range that has been taken: what is missing there is a hole of the layer's file.
pub(crate) fn snapshot_taken<B: Buffer>(
    region: Region,
    inode: &Inode,
    to: B,
    len: usize,
    offset: u64,
) -> Result<usize> {
    snapshot_of(region, inode, to, (len, offset), Missing::Holes)
}

#[inline]
fn snapshot_of<B: Buffer>(
    region: Region,
    inode: &Inode,
    to: B,
    range: (usize, u64),
    missing: Missing,
) -> Result<usize> {
    let before = inode.data_seq.read();
    let got = copy(region, inode, to, range, missing);
    if !inode.data_seq.retry(before) {
        return got;
    }
    snapshot_slow(region, inode, to, range, missing)
}

/// `snapshot` to memory of our own; fewer bytes than `to` holds where the content ends.
pub fn into(region: Region, inode: &Inode, to: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: the memory is borrowed exclusively until the call returns.
    let room = unsafe { UserSlice::new(to.as_mut_ptr(), to.len()) };
    snapshot(region, inode, Single::new(room)?, to.len(), offset)
}

#[cold]
fn snapshot_slow<B: Buffer>(
    region: Region,
    inode: &Inode,
    to: B,
    range: (usize, u64),
    missing: Missing,
) -> Result<usize> {
    let (mut stuck, mut tries) = (0, 0);
    // Relaxed: a hint.
    let there = inode.size.load(Relaxed).saturating_sub(range.1).min(range.0 as u64);
    let most = (COPIED / there.max(1)).clamp(1, TRIES.into()) as u32;
    let mut last = inode.data_seq.read();
    while tries < most {
        let before = inode.data_seq.read();
        stuck = if before == last && before & 1 != 0 { stuck + 1 } else { 0 };
        last = before;
        // A copy during a change is worthless, unless that change has stopped.
        if before & 1 != 0 && stuck < SPINS {
            spin();
            continue;
        }
        if before & 1 != 0 && stuck < SPINS + PAUSES {
            pause();
            continue;
        }
        // Its writer has stopped, or makes a long change: a truncation may be freeing pages under this very
        // count.
        if before & 1 != 0 {
            break;
        }
        let got = copy(region, inode, to, range, missing);
        if !inode.data_seq.retry(before) {
            return got;
        }
        tries += 1;
    }
    page_by_page(region, inode, to, range, missing)
}

/// What Linux gives a reader beside a writer that never rests or does not finish: each page as it was at some
/// moment. A page counts only if the map still names it after the copy.
fn page_by_page<B: Buffer>(
    region: Region,
    inode: &Inode,
    to: B,
    (len, offset): (usize, u64),
    missing: Missing,
) -> Result<usize> {
    let (mut to, mut done) = (to, 0);
    while done < len {
        let at = offset + done as u64;
        let bytes = (PAGE_SIZE - at as usize % PAGE_SIZE).min(len - done);
        let index = at / PAGE_SIZE as u64;
        let got = loop {
            let page = map::get(region, inode, index);
            let got = copy(region, inode, to, (bytes, at), missing);
            acquire_fence();
            if map::get(region, inode, index) == page {
                break got;
            }
        };
        let got = match got {
            Err(_) if done > 0 => break,
            got => got?,
        };
        to.skip(got)?;
        done += got;
        if got < bytes {
            break;
        }
    }
    Ok(done)
}

fn copy<B: Buffer>(
    region: Region,
    inode: &Inode,
    mut to: B,
    (len, offset): (usize, u64),
    missing: Missing,
) -> Result<usize> {
    let size = inode.size.load(Relaxed); // Relaxed: ordered and validated by `data_seq`.
    if offset >= size {
        return Ok(0);
    }
    let len = len.min((size - offset).min(usize::MAX as u64) as usize);
    let within = offset as usize % PAGE_SIZE;
    if within + len > PAGE_SIZE {
        return copy_pages(region, inode, to, (len, offset), missing);
    }
    let page = map::get(region, inode, offset / PAGE_SIZE as u64);
    let got = if page.is_some() {
        // SAFETY: within the page.
        unsafe { buffer::copy(Direction::Out, region.page(page).add(within), &mut to, len, (Fd::NONE, 0)) }
    } else {
        hole(inode, &mut to, len, missing)?
    };
    if got == 0 && len != 0 { Err(Errno::EFAULT) } else { Ok(got) }
}

/// Returns the zeros of a hole, or [`below::MISSING`] if it is content still to be taken.
fn hole<B: Buffer>(inode: &Inode, to: &mut B, len: usize, missing: Missing) -> Result<usize> {
    match missing == Missing::Content && below::is_pending(inode) {
        true => Err(below::MISSING),
        false => Ok(buffer::zero_out(to, len)),
    }
}

/// Copies what spans several pages, consecutive ones at once.
#[inline(never)]
fn copy_pages<B: Buffer>(
    region: Region,
    inode: &Inode,
    mut to: B,
    (len, offset): (usize, u64),
    missing: Missing,
) -> Result<usize> {
    let map = Map::of(inode);
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = at as usize % PAGE_SIZE;
        let pages = (within + len - done).div_ceil(PAGE_SIZE) as u64;
        let piece = map::piece(region, map, at / PAGE_SIZE as u64, pages);
        let bytes = (piece.len as usize * PAGE_SIZE - within).min(len - done);
        let got = match span(region, piece.page, piece.len) {
            Some(base) => {
                // SAFETY: `span` checked that the pages are in the region.
                let from = unsafe { region.base().add(base + within) };
                // SAFETY: `span` checked that the pages are in the region, and in its file.
                unsafe { buffer::copy(Direction::Out, from, &mut to, bytes, (region.fd(), base + within)) }
            }
            None => hole(inode, &mut to, bytes, missing)?,
        };
        done += got;
        if got < bytes {
            break;
        }
    }
    if done == 0 && len != 0 { Err(Errno::EFAULT) } else { Ok(done) }
}

/// Offset of a run of pages in the region; `None` for a hole, and for pages that only a damaged region names.
pub(crate) fn span(region: Region, first: PageId, len: u64) -> Option<usize> {
    let last = PageId(first.0.checked_add(len as u32 - 1)?);
    region.page_offset(last).filter(|_| first.is_some())?;
    region.page_offset(first)
}
