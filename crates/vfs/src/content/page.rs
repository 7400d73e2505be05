//! Data pages: taking and giving them.
//!
//! Pages lie in 2 MiB chunks with one bit per page, which are changed without a lock ([`chunk`]). A lane
//! prefers to allocate from its own chunk, so that its cache lines are its own and a file's pages are
//! consecutive. It starts at the first page that it freed or after the last that it took, so that a page just
//! freed, which is in the cache, is used next. If every chunk has an owner, the lane takes pages wherever
//! there are some: `ENOSPC` means that all are in use.
//!
//! A death loses nothing. The lane names pages in hand ([`moving`](lp_region::lane::PageMarks::moving)) from
//! the moment their bits are set until they are linked in or their bits are cleared. Those of a dead lane
//! stay in use if the map they belong to names them, and are freed otherwise (`hand.rs`).
//!
//! A chunk that becomes free returns its memory to the host (`backing.rs`), except for a reserve.

use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::layout::CHUNK_PAGES;
use lp_region::records::Chunk;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, LaneId, PageId, Region};

use crate::caller::task::Task;
use crate::content::bulk;
use crate::content::chunk::{self, ChunkPick, usable};
use crate::content::run::{Content, Fresh, PageHome, PageRun};
use crate::content::{allowance, backing, owner};

/// Number of free chunks that keep their memory.
const RESERVE: u32 = 8;

/// Takes up to `want` consecutive pages of content for `home`. The lane names them until [`settle`].
///
/// # Errors
/// `ENOSPC` if all pages are in use.
pub(crate) fn take_run(task: &Task, home: PageHome, want: u32) -> Result<Fresh> {
    take_at(task, home, 0, want)
}

/// Takes one zeroed page, for content or for a map page of a height.
///
/// # Errors
/// Those of [`take_run`].
pub(crate) fn take_zeroed(task: &Task, home: PageHome, height: u32) -> Result<PageId> {
    let fresh = take_at(task, home, height, 1)?;
    if fresh.content == Content::Old {
        zero(task.region, fresh.run.first, 0, PAGE_SIZE);
    }
    Ok(fresh.run.first)
}

fn take_at(task: &Task, home: PageHome, height: u32, want: u32) -> Result<Fresh> {
    if height == 0 && !allowance::may_take(task, home.inode) {
        return Err(Errno::ENOSPC);
    }
    let marks = &task.lane.pages;
    marks.inode.store(home.inode.0, Relaxed); // Relaxed: published by the store of `moving`.
    marks.index.store(home.index, Relaxed);
    let want = want.clamp(1, CHUNK_PAGES as u32);
    // Relaxed: only this lane writes it.
    let taken = match marks.chunk.load(Relaxed) {
        0 => None,
        own => take_in(task, own as usize - 1, want, &mut SpaceLeft::Unknown),
    };
    let fresh = match taken {
        Some(fresh) => fresh,
        None => take_slow(task, want)?,
    };
    owner::set(task.region, home, height, fresh.run);
    if height != 0 {
        return Ok(fresh);
    }
    // What the file system's own limit does not allow goes back.
    match allowance::charge_pages(task, home.inode, fresh.run.len) {
        0 => give(task),
        len if len < fresh.run.len => {
            keep(task, len);
            return Ok(Fresh { run: PageRun { len, ..fresh.run }, ..fresh });
        }
        _ => return Ok(fresh),
    }
    Err(Errno::ENOSPC)
}

/// Zeroes `len` bytes of a page from `offset`.
#[inline]
pub(crate) fn zero(region: Region, page: PageId, offset: usize, len: usize) {
    let offset = offset.min(PAGE_SIZE);
    // SAFETY: within the page.
    unsafe { region.page(page).add(offset).write_bytes(0, len.min(PAGE_SIZE - offset)) };
}

/// Records that the run last taken is linked in.
#[inline]
pub(crate) fn settle(task: &Task) {
    // Release: a reader that finds the pages unnamed finds them linked in.
    chunk::name(&task.lane.pages, PageRun { first: PageId::NONE, len: 0 });
}

/// Names pages that are about to be unlinked from `home`; [`give`] must follow.
#[inline]
pub(crate) fn unlinking(task: &Task, home: PageHome, run: PageRun) {
    let marks = &task.lane.pages;
    marks.inode.store(home.inode.0, Relaxed); // Relaxed: published by the store below.
    marks.index.store(home.index, Relaxed);
    chunk::name(marks, run);
}

/// Frees the pages in hand: those that [`unlinking`] named, or the run last taken. Nothing may link to them.
pub(crate) fn give(task: &Task) {
    let marks = &task.lane.pages;
    let Some(run) = chunk::named(marks) else { return };
    chunk::give(task.region, task.lane, 0);
    let index = run.first.index() / CHUNK_PAGES;
    if marks.chunk.load(Relaxed) as usize == index + 1 {
        if run.first.0 < marks.next.load(Relaxed) {
            marks.next.store(run.first.0, Relaxed);
        }
    } else {
        let hint = &task.region.header().chunk_hint;
        if (index as u32) < hint.load(Relaxed) {
            hint.store(index as u32, Relaxed);
        }
        shrink_slow(task, index);
    }
}

/// Keeps the first `len` pages, at least one, of the run last taken and frees the rest.
pub(crate) fn keep(task: &Task, len: u32) {
    chunk::give(task.region, task.lane, len);
}

/// What is known about free space in the file system of the region's file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpaceLeft {
    /// There may be some.
    Unknown,
    /// It was full a moment ago: only pages that have their space already can be used.
    Gone,
}

/// Takes pages from one chunk; `None` if it is full.
fn take_in(task: &Task, index: usize, want: u32, room: &mut SpaceLeft) -> Option<Fresh> {
    let chunk = task.region.chunk(index)?;
    let mut run = None;
    if *room == SpaceLeft::Unknown {
        match take_backed(task, index, want, u32::MAX) {
            Ok(taken) => run = Some(taken?),
            Err(_) => *room = SpaceLeft::Gone,
        }
    }
    // Relaxed: checked again once pages are taken.
    let run = match run {
        Some(run) => run,
        None => take_backed(task, index, want, chunk.populated.load(Relaxed)).ok()??,
    };
    let mut content = Content::Zeros;
    // Relaxed: the pages' former user freed them, with their marks, before this lane took them.
    run.words(|word, mask| {
        let dirty = chunk.dirty[word].load(Relaxed) & mask;
        if dirty != 0 {
            content = Content::Old;
        }
        if dirty != mask {
            chunk.dirty[word].fetch_or(mask, Relaxed);
        }
    });
    task.lane.pages.next.store(run.first.0 + run.len, Relaxed);
    // More the kernel copies itself, without zeroing pages first.
    if content == Content::Zeros && (run.len as usize) < bulk::LEAST / PAGE_SIZE {
        backing::make_ready(task, run);
    }
    Some(Fresh { run, content })
}

/// Takes pages from the eighths of a chunk that `eighths` selects; `None` if they are full.
///
/// # Errors
/// Those of [`backing::back`].
fn take_backed(task: &Task, index: usize, want: u32, eighths: u32) -> Result<Option<PageRun>> {
    let region = task.region;
    let Some(chunk) = region.chunk(index) else { return Ok(None) };
    let base = (index * CHUNK_PAGES) as u32;
    let next = task.lane.pages.next.load(Relaxed); // Relaxed: only this lane writes it.
    let from = if next >= base && next < base + CHUNK_PAGES as u32 { next - base } else { 0 };
    let Some(run) = (ChunkPick { region, chunk, index, eighths }).take(task.lane, from, want) else {
        return Ok(None);
    };
    let done = backing::back(region, chunk, run);
    if done.is_err() {
        chunk::give(region, task.lane, 0);
    }
    done.map(|()| Some(run))
}

/// Finds another chunk: one without an owner if there is one, else any with a free page.
#[cold]
fn take_slow(task: &Task, want: u32) -> Result<Fresh> {
    let mut room = SpaceLeft::Unknown;
    for pass in [Pass::Unowned, Pass::Any] {
        if let Some(fresh) = search(task, want, pass, &mut room) {
            return Ok(fresh);
        }
    }
    Err(Errno::ENOSPC)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Unowned,
    Any,
}

fn search(task: &Task, want: u32, pass: Pass, room: &mut SpaceLeft) -> Option<Fresh> {
    let region = task.region;
    let header = region.header();
    let data_pages = header.data_pages.load(Relaxed); // Relaxed: immutable.
    let count = region.chunk_count().min(data_pages as usize / CHUNK_PAGES + 1);
    // Relaxed: a hint, the lowest chunk with free pages.
    let start = header.chunk_hint.load(Relaxed) as usize % count;
    for step in 0..count {
        let index = (start + step) % count;
        let Some(chunk) = region.chunk(index) else { continue };
        let has_room = (0..8).any(|word| !chunk.used(word) & usable(data_pages, index, word) != 0);
        // Relaxed: checked again inside.
        let is_holed = *room == SpaceLeft::Gone && chunk.populated.load(Relaxed) == 0;
        if !has_room || is_holed || (pass == Pass::Unowned && is_owned(task, chunk, index)) {
            continue;
        }
        if let Some(fresh) = take_in(task, index, want, room) {
            if pass == Pass::Unowned {
                chunk.owner.store(task.lane_id.0, Relaxed); // Relaxed: a hint.
                task.lane.pages.chunk.store(index as u32 + 1, Relaxed);
                header.chunk_hint.store(index as u32, Relaxed);
                header.chunk_limit.fetch_max(index as u32 + 1, Relaxed);
            }
            return Some(fresh);
        }
    }
    None
}

fn is_owned(task: &Task, chunk: &Chunk, index: usize) -> bool {
    let owner = LaneId(chunk.owner.load(Relaxed)); // Relaxed: a hint.
    if owner.is_none() || owner == task.lane_id {
        return false;
    }
    let lane = task.region.lane(owner);
    lane.process.load(Relaxed) != 0 && lane.pages.chunk.load(Relaxed) as usize == index + 1
}

/// Returns a free chunk's memory to the host, unless it belongs to the reserve. Takes all its pages
/// meanwhile.
#[cold]
fn shrink_slow(task: &Task, index: usize) {
    let region = task.region;
    let Some(chunk) = region.chunk(index) else { return };
    let is_free = |chunk: &Chunk| (0..8).all(|word| chunk.used(word) == 0);
    if (index as u32) < RESERVE || !is_free(chunk) || is_owned(task, chunk, index) {
        return;
    }
    let first = PageId((index * CHUNK_PAGES) as u32);
    let data_pages = region.header().data_pages.load(Relaxed); // Relaxed: immutable.
    let all = (data_pages + 1 - u64::from(first.0)).min(CHUNK_PAGES as u64) as u32;
    // In no map, so the burial of this lane would free them.
    // Relaxed: published by the exchange of the first bits.
    task.lane.pages.inode.store(InodeId::NONE.0, Relaxed);
    let run = ChunkPick { region, chunk, index, eighths: u32::MAX }.take(task.lane, 0, all);
    if run.is_some_and(|run| run.len == all) && chunk.populated.load(Relaxed) != 0 {
        // Before the space goes, so that a death leaves no page that wrongly counts as having some.
        chunk.populated.store(0, Relaxed);
        if backing::discard(region, first, CHUNK_PAGES * PAGE_SIZE).is_ok() {
            // A death before this loop ends leaves some zeroed pages marked dirty, which only means that they
            // are zeroed again.
            chunk.dirty.iter().for_each(|word| word.store(0, Relaxed));
        }
    }
    chunk::give(region, task.lane, 0);
}

/// Whether less than an eighth of all pages is free.
pub(crate) fn is_scarce(region: Region) -> bool {
    let header = region.header();
    // Relaxed, both: a hint.
    let (data_pages, limit) = (header.data_pages.load(Relaxed), header.chunk_limit.load(Relaxed));
    let (reached, kept) = (u64::from(limit) * CHUNK_PAGES as u64, data_pages / 8);
    // Pages beyond the limit are free and need not be counted.
    data_pages.saturating_sub(reached) < kept && free_count(region) < kept
}

/// Number of free pages.
pub fn free_count(region: Region) -> u64 {
    let header = region.header();
    let data_pages = header.data_pages.load(Relaxed); // Relaxed: immutable.
    // Chunks beyond the limit were never used, except those that lanes had to use because the host's file
    // system was full.
    let limit = (header.chunk_limit.load(Relaxed) as usize).min(region.chunk_count());
    let mut used = 0;
    for index in 0..limit {
        let Some(chunk) = region.chunk(index) else { break };
        used += (0..8)
            .map(|word| u64::from((chunk.used(word) & usable(data_pages, index, word)).count_ones()))
            .sum::<u64>();
    }
    data_pages.saturating_sub(used)
}
