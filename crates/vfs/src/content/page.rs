//! Data pages: allocating and freeing them, and returning their memory to the host.
//!
//! Pages lie in 2 MiB chunks with one bit per page, which are changed without a lock ([`chunk`]). A lane
//! prefers to allocate from its own chunk, so that its cache lines are its own and a file's pages are
//! consecutive. It starts at the first page that it freed or after the last that it took, so that a page just
//! freed, which is in the cache, is used next. If every chunk has an owner, the lane takes pages wherever
//! there are some: `ENOSPC` means that all are in use.
//!
//! A death loses nothing. The lane names pages in hand ([`PageMarks::moving`]) from the moment their bits are
//! set until they are linked in or their bits are cleared. Those of a dead lane stay in use if the map they
//! belong to names them, and are freed otherwise (`repair`).
//!
//! Memory: the first touch of a page costs microseconds, so memory is populated in batches that grow while a
//! lane uses fresh pages in sequence. A chunk that becomes free returns its memory, except for a reserve.

use lp_abi::linux::{
    __NR_fallocate, __NR_madvise, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MADV_DONTNEED,
    MADV_POPULATE_WRITE,
};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::lane::PageMarks;
use lp_region::layout::CHUNK_PAGES;
use lp_region::records::{Chunk, Inode};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, LaneId, PageId, Region};

use crate::caller::task::Task;
use crate::content::allowance;
use crate::content::chunk::{self, ChunkPick, usable};
use crate::content::{map, owner};

/// Maximum number of pages populated at a time.
const AHEAD: u32 = 64;
/// Number of free chunks that keep their memory.
const RESERVE: u32 = 8;

/// Consecutive pages within one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRun {
    /// The first page.
    pub first: PageId,
    /// Their number, 1 to [`CHUNK_PAGES`].
    pub len: u32,
}

impl PageRun {
    /// One page.
    pub const fn one(page: PageId) -> PageRun {
        PageRun { first: page, len: 1 }
    }

    /// Its pages.
    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (self.first.0..self.first.0.saturating_add(self.len)).map(PageId)
    }
}

/// The place of pages: the inode, and the index of the first in its content (or any index below a map page).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHome {
    /// The inode.
    pub inode: InodeId,
    /// The index.
    pub index: u64,
}

/// A run of fresh pages, and whether they may hold old bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// The pages.
    pub run: PageRun,
    /// Whether some were in use before; if not, all are zeros.
    pub content: Content,
}

/// The bytes of a fresh page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Zeros.
    Zeros,
    /// Bytes from its previous use.
    Old,
}

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
    words_of(run, |word, mask| {
        let dirty = chunk.dirty[word].load(Relaxed) & mask;
        if dirty != 0 {
            content = Content::Old;
        }
        if dirty != mask {
            chunk.dirty[word].fetch_or(mask, Relaxed);
        }
    });
    task.lane.pages.next.store(run.first.0 + run.len, Relaxed);
    if content == Content::Zeros && run.len == 1 {
        make_ready(task, run.first, index);
    }
    Some(Fresh { run, content })
}

/// Takes pages from the eighths of a chunk that `eighths` selects; `None` if they are full.
///
/// # Errors
/// Those of [`back`].
fn take_backed(task: &Task, index: usize, want: u32, eighths: u32) -> Result<Option<PageRun>> {
    let region = task.region;
    let Some(chunk) = region.chunk(index) else { return Ok(None) };
    let base = (index * CHUNK_PAGES) as u32;
    let next = task.lane.pages.next.load(Relaxed); // Relaxed: only this lane writes it.
    let from = if next >= base && next < base + CHUNK_PAGES as u32 { next - base } else { 0 };
    let Some(run) = (ChunkPick { region, chunk, index, eighths }).take(task.lane, from, want) else {
        return Ok(None);
    };
    let done = back(region, chunk, run);
    if done.is_err() {
        chunk::give(region, task.lane, 0);
    }
    done.map(|()| Some(run))
}

/// Allocates space in the region's file, if it is one, for the pages of a run. The caller must have taken
/// them.
fn back(region: Region, chunk: &Chunk, run: PageRun) -> Result<()> {
    // Relaxed: eighths that contain pages of the run lose no space meanwhile.
    let populated = chunk.populated.load(Relaxed);
    let (mut missing, mut done) = (0u32, Ok(()));
    words_of(run, |word, _| missing |= 1 << word & !populated);
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

/// Calls `visit(word, mask)` for the words of 64 pages that a run covers in its chunk.
fn words_of(run: PageRun, mut visit: impl FnMut(usize, u64)) {
    let first = run.first.0 % CHUNK_PAGES as u32;
    let end = (first + run.len).min(CHUNK_PAGES as u32);
    let mut at = first;
    while at < end {
        let bit = at % 64;
        let len = (64 - bit).min(end - at);
        visit(at as usize / 64, u64::MAX >> (64 - len) << bit);
        at += len;
    }
}

/// Allocates space in the region's file for the pages in use. Nobody may use the region meanwhile.
///
/// # Errors
/// Those of [`Region::back`].
pub(crate) fn back_all(region: Region) -> Result<()> {
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

/// Populates memory for `page` and, while the lane uses fresh pages in sequence, for more behind it.
#[cold]
fn make_ready(task: &Task, page: PageId, index: usize) {
    let marks = &task.lane.pages;
    // Relaxed throughout: only this lane writes its marks.
    let ready = marks.ready.load(Relaxed);
    let ahead = marks.ahead.load(Relaxed).min(AHEAD);
    let end = ((index + 1) * CHUNK_PAGES) as u32;
    if page.0 < ready && ready - page.0 <= ahead {
        return;
    }
    let ahead = if page.0 == ready { (ahead * 2).clamp(2, AHEAD) } else { 1 };
    marks.ahead.store(ahead, Relaxed);
    marks.ready.store(page.0 + ahead.min(end - page.0), Relaxed);
    if ahead > 1 {
        let bytes = ahead.min(end - page.0) as usize * PAGE_SIZE;
        // SAFETY: populates pages of the region and changes no byte. If it fails, the first touch does the
        // work.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, task.region.page(page), bytes, MADV_POPULATE_WRITE) };
    }
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
        if discard(region, first, CHUNK_PAGES * PAGE_SIZE).is_ok() {
            // A death before this loop ends leaves some zeroed pages marked dirty, which only means that they
            // are zeroed again.
            chunk.dirty.iter().for_each(|word| word.store(0, Relaxed));
        }
    }
    chunk::give(region, task.lane, 0);
}

/// Returns the memory of pages to the host; they read as zeros afterwards.
fn discard(region: Region, first: PageId, bytes: usize) -> Result<()> {
    let offset = region.page_offset(first).ok_or(Errno::EINVAL)?;
    if !region.has_file() {
        // SAFETY: nobody uses the pages; private memory reads as zeros after MADV_DONTNEED.
        return unsafe { lp_abi::syscall!(__NR_madvise, region.page(first), bytes, MADV_DONTNEED) }.map(drop);
    }
    let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    // SAFETY: nobody uses the pages.
    unsafe { lp_abi::syscall!(__NR_fallocate, region.fd(), mode, offset, bytes) }.map(drop)
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

/// Settles the pages that a dead lane had in hand. The caller must be burying that lane, and hold the lock of
/// the pages' inode or know that nobody else can reach it.
pub(crate) fn repair(task: &Task, lane: LaneId) {
    let region = task.region;
    let record = region.lane(lane);
    let marks: &PageMarks = &record.pages;
    chunk::settle(region, record);
    let inode: &Inode = region.inode(InodeId(marks.inode.load(Relaxed)));
    let index = marks.index.load(Relaxed);
    while let Some(run) = chunk::named(marks) {
        let rest = run.len - 1;
        let last = PageId(run.first.0.saturating_add(rest));
        if map::names(region, inode, index + u64::from(rest), last) {
            chunk::name(marks, PageRun { len: rest, ..run });
        } else {
            chunk::give(region, record, rest);
        }
    }
}
