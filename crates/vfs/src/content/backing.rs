//! The host's memory and space behind pages: allocating it, populating it ahead of use, returning it.
//!
//! The first touch of a page costs microseconds, so memory is populated in batches that grow while a lane
//! uses fresh pages in sequence.

use lp_abi::linux::{
    __NR_fallocate, __NR_madvise, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MADV_DONTNEED,
    MADV_POPULATE_WRITE,
};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::layout::CHUNK_PAGES;
use lp_region::records::Chunk;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{PageId, Region};

use crate::caller::task::Task;
use crate::content::owner;
use crate::content::run::PageRun;

/// Maximum number of pages populated ahead of a run.
const AHEAD: u32 = 64;
/// Allocates space in the region's file, if it is one, for the pages of a run. The caller must have taken
/// them.
///
/// # Errors
/// Those of [`Region::back`].
pub(crate) fn back(region: Region, chunk: &Chunk, run: PageRun) -> Result<()> {
    // Relaxed: eighths that contain pages of the run lose no space meanwhile.
    let populated = chunk.populated.load(Relaxed);
    let (mut missing, mut done) = (0u32, Ok(()));
    run.words(|word, _| missing |= 1 << word & !populated);
    if missing != 0 {
        if populated == 0 {
            owner::back(region, run.first.index() / CHUNK_PAGES)?;
        }
        let chunk_first = run.first.0 - run.first.0 % CHUNK_PAGES as u32;
        let (low, high) = (missing.trailing_zeros(), missing.ilog2());
        done = region
            .page_offset(PageId(chunk_first + low * 64))
            .ok_or(Errno::ENOSPC)
            .and_then(|offset| region.back(offset, (high + 1 - low) as usize * 64 * PAGE_SIZE));
        if done.is_ok() {
            chunk.populated.fetch_or(missing, Relaxed);
        }
    }
    done
}

/// Allocates space in the region's file for the pages in use. Nobody may use the region meanwhile.
///
/// # Errors
/// Those of [`Region::back`].
pub(crate) fn back_all(region: Region) -> Result<()> {
    region.read_chunks();
    let used = (0..region.chunk_count())
        .filter(|index| region.chunk(*index).is_some_and(|chunk| chunk.populated.load(Relaxed) != 0));
    used.clone().try_for_each(|index| owner::back(region, index))?;
    let eighths = (0..region.chunk_count()).flat_map(|index| {
        let populated = region.chunk(index).map_or(0, |chunk| chunk.populated.load(Relaxed));
        (0..8).filter(move |word| populated & 1 << word != 0).map(move |word| index * 8 + word)
    });
    let bytes = 64 * PAGE_SIZE;
    let mut run = 0..0;
    for eighth in eighths {
        if eighth != run.end {
            region.back(lp_region::layout::DATA_AT + run.start * bytes, run.len() * bytes)?;
            run.start = eighth;
        }
        run.end = eighth + 1;
    }
    region.back(lp_region::layout::DATA_AT + run.start * bytes, run.len() * bytes)
}

/// Populates memory for a run and, while the lane uses fresh pages in sequence, for more behind it.
#[cold]
pub(crate) fn make_ready(task: &Task, run: PageRun) {
    let marks = &task.lane.pages;
    // Relaxed throughout: only this lane writes its marks.
    let ready = marks.ready.load(Relaxed);
    let (first, last) = (run.first.0, run.first.0 + run.len);
    let behind = marks.ahead.load(Relaxed);
    let from = if first < ready && ready - first <= behind { ready } else { first };
    if last <= from {
        return;
    }
    let ahead = if from == ready { (behind.min(AHEAD) * 2).clamp(2, AHEAD) } else { 1 };
    let end = first - first % CHUNK_PAGES as u32 + CHUNK_PAGES as u32;
    let to = last.max(from + ahead).min(end);
    marks.ahead.store(to - from, Relaxed);
    marks.ready.store(to, Relaxed);
    if to - from > 1 {
        let (at, bytes) = (task.region.page(PageId(from)), (to - from) as usize * PAGE_SIZE);
        // SAFETY: populates pages of the region and changes no byte. If it fails, the first touch does the
        // work.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, at, bytes, MADV_POPULATE_WRITE) };
    }
}

/// Returns the memory of pages to the host; they read as zeros afterwards.
///
/// # Errors
/// Those of fallocate(2).
pub(crate) fn discard(region: Region, first: PageId, bytes: usize) -> Result<()> {
    let offset = region.page_offset(first).ok_or(Errno::EINVAL)?;
    if !region.has_file() {
        // SAFETY: nobody uses the pages; private memory reads as zeros after MADV_DONTNEED.
        return unsafe { lp_abi::syscall!(__NR_madvise, region.page(first), bytes, MADV_DONTNEED) }.map(drop);
    }
    let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    // SAFETY: nobody uses the pages.
    unsafe { lp_abi::syscall!(__NR_fallocate, region.fd(), mode, offset, bytes) }.map(drop)
}
