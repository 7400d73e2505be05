//! Pages of data: taking them, giving them back, and giving their memory back to the host.
//!
//! Pages lie in 2 MiB chunks; a chunk's lock guards one bit a page. A lane allocates from a chunk of its own by
//! preference, so that locks are uncontended and a file's pages are neighbours; it starts at the first page it gave
//! back or behind the last it took, so that a page that was just freed, and is in the cache, is used next. When no
//! chunk is without an owner it takes pages wherever there are some: `ENOSPC` means that all are in use.
//!
//! Nothing is lost to a death. Pages on their way are named in the lane ([`PageMarks::moving`]) with what happens to
//! them ([`Phase`]); bits and phase change together under the chunk's lock. A death between two phases leaves the lock
//! held, and whoever takes it over finishes the step before anybody can use the chunk ([`ChunkUndertaker`]); pages that
//! were taken or about to be unlinked are settled by looking into the map they belong to ([`repair`]).
//!
//! Memory: the first touch of a page costs microseconds, so memory is made in batches that grow while a lane goes
//! on through fresh pages; a chunk that is free again gives its memory back, but for a reserve.

use lp_abi::linux::{
    __NR_fallocate, __NR_madvise, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MADV_DONTNEED,
    MADV_POPULATE_WRITE,
};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::lane::PageMarks;
use lp_region::layout::CHUNK_PAGES;
use lp_region::lock::{Lanes, Undertaker};
use lp_region::records::{Chunk, Inode};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeId, LaneId, PageId, Region};

use crate::owner;
use crate::task::Task;

/// Most pages that memory is made for at a time.
const AHEAD: u32 = 64;
/// Free chunks that keep their memory.
const RESERVE: u32 = 8;

/// Neighbouring pages, in one chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first.
    pub first: PageId,
    /// How many, 1 to [`CHUNK_PAGES`].
    pub len: u32,
}

impl Run {
    /// One page.
    pub const fn one(page: PageId) -> Run {
        Run { first: page, len: 1 }
    }

    /// Its pages.
    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (self.first.0..self.first.0.saturating_add(self.len)).map(PageId)
    }
}

/// Where pages belong: the inode, and the index of the first in its content (or any index below a map page).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Home {
    /// The inode.
    pub inode: InodeId,
    /// The index.
    pub index: u64,
}

/// What happens to the pages that a lane names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Bits are being set; the chunk is locked, nothing links to them.
    Taking = 1,
    /// In use, perhaps linked in.
    Taken = 2,
    /// In use, perhaps unlinked.
    Unlinking = 3,
    /// Bits are being cleared; the chunk is locked, nothing links to them.
    Giving = 4,
}

const LEN_SHIFT: u32 = 32;
const PHASE_SHIFT: u32 = 48;

fn pack(phase: Phase, run: Run) -> u64 {
    (phase as u64) << PHASE_SHIFT | u64::from(run.len) << LEN_SHIFT | u64::from(run.first.0)
}

fn unpack(word: u64) -> Option<(Phase, Run)> {
    let phase = match word >> PHASE_SHIFT {
        1 => Phase::Taking,
        2 => Phase::Taken,
        3 => Phase::Unlinking,
        4 => Phase::Giving,
        _ => return None,
    };
    let len = (word >> LEN_SHIFT) as u16 as u32;
    Some((phase, Run { first: PageId(word as u32), len: len.min(CHUNK_PAGES as u32) }))
}

/// The pages that a lane names as on their way: in use or not, linked in or not.
pub fn in_hand(lane: &lp_region::lane::Lane) -> impl Iterator<Item = PageId> {
    let run = unpack(lane.pages.moving.load(Acquire)).map(|(_, run)| run);
    run.into_iter().flat_map(Run::pages)
}

/// Takes over a chunk's lock from a dead lane.
struct ChunkUndertaker<'t, 'r>(&'t Task<'r>);

impl Undertaker for ChunkUndertaker<'_, '_> {
    fn lanes(&self) -> &dyn Lanes {
        self.0
    }

    fn repair(&self, lane: LaneId) {
        let region = self.0.region;
        let marks = &region.lane(lane).pages;
        let Some((phase, run)) = unpack(marks.moving.load(Acquire)) else { return };
        let Some(chunk) = chunk_of(region, run.first) else { return };
        if chunk.lock.holder() != self.0.lane_id {
            return;
        }
        // What the dead lane did under the lock touched no other chunk, so this is all there is to finish.
        match phase {
            Phase::Taking | Phase::Giving => {
                free_bits(region, chunk, run);
                marks.moving.store(0, Release);
            }
            // It may have died inside `keep`: pages at the end of the run may be free again.
            Phase::Taken | Phase::Unlinking => {
                let is_used = |page: &PageId| {
                    let bit = page.0 % CHUNK_PAGES as u32;
                    chunk.used[bit as usize / 64].load(Relaxed) & 1 << (bit % 64) != 0
                };
                let len = run.pages().take_while(is_used).count() as u32;
                marks.moving.store(pack(phase, Run { len, ..run }), Release);
            }
        }
    }
}

fn lock_chunk(task: &Task, chunk: &Chunk) {
    chunk.lock.lock(task.lane_id, &ChunkUndertaker(task));
}

fn chunk_of<'r>(region: Region<'r>, page: PageId) -> Option<&'r Chunk> {
    region.chunk(page.index() / CHUNK_PAGES)
}

fn mask(bit: u32, len: u32) -> u64 {
    if len >= 64 { !0 } else { ((1 << len) - 1) << bit }
}

/// Calls `visit(word, mask)` for the words of a chunk's bitmap that `run` covers.
fn words_of(run: Run, mut visit: impl FnMut(usize, u64)) {
    let first = run.first.0 % CHUNK_PAGES as u32;
    let end = (first + run.len).min(CHUNK_PAGES as u32);
    let mut at = first;
    while at < end {
        let bit = at % 64;
        let len = (64 - bit).min(end - at);
        visit(at as usize / 64, mask(bit, len));
        at += len;
    }
}

/// Makes pages free. The caller holds their chunk's lock.
fn free_bits(region: Region, chunk: &Chunk, run: Run) {
    owner::clear(region, run);
    // Relaxed: guarded by the chunk's lock.
    words_of(run, |word, mask| chunk.used[word].store(chunk.used[word].load(Relaxed) & !mask, Relaxed));
}

/// A run of fresh pages and whether they may hold old bytes.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// The pages.
    pub run: Run,
    /// Whether some were in use before: if not, all are zeros.
    pub content: Content,
}

/// What a fresh page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Zeros.
    Zeros,
    /// Bytes of its former life.
    Old,
}

/// Takes up to `want` neighbouring pages of content for `home`. They stay named in the lane until [`settle`].
///
/// # Errors
/// `ENOSPC` when all pages are in use.
pub fn take_run(task: &Task, home: Home, want: u32) -> Result<Fresh> {
    take_at(task, home, 0, want)
}

/// Takes one page, all zeros: of content, or for a map page of a height.
///
/// # Errors
/// As [`take_run`].
pub fn take_zeroed(task: &Task, home: Home, height: u32) -> Result<PageId> {
    let fresh = take_at(task, home, height, 1)?;
    if fresh.content == Content::Old {
        zero(task.region, fresh.run.first, 0, PAGE_SIZE);
    }
    Ok(fresh.run.first)
}

fn take_at(task: &Task, home: Home, height: u32, want: u32) -> Result<Fresh> {
    let marks = &task.lane.pages;
    marks.inode.store(home.inode.0, Relaxed); // Relaxed: published by the store of `moving`.
    marks.index.store(home.index, Relaxed);
    let want = want.clamp(1, CHUNK_PAGES as u32);
    // Relaxed: only this lane writes it.
    let taken = match marks.chunk.load(Relaxed) {
        0 => None,
        own => take_in(task, own as usize - 1, want, &mut Room::Unknown),
    };
    let fresh = match taken {
        Some(fresh) => fresh,
        None => take_slow(task, want)?,
    };
    owner::set(task.region, home, height, fresh.run);
    Ok(fresh)
}

/// Fills `len` bytes from `offset` of a page with zeros.
#[inline]
pub fn zero(region: Region, page: PageId, offset: usize, len: usize) {
    let offset = offset.min(PAGE_SIZE);
    // SAFETY: within the page.
    unsafe { region.page(page).add(offset).write_bytes(0, len.min(PAGE_SIZE - offset)) };
}

/// Says that the run last taken is linked in.
#[inline]
pub fn settle(task: &Task) {
    // Release: whoever sees the pages forgotten sees them linked in.
    task.lane.pages.moving.store(0, Release);
}

/// Names pages that are about to be unlinked from `home`; [`give`] follows.
#[inline]
pub fn unlinking(task: &Task, home: Home, run: Run) {
    let marks = &task.lane.pages;
    marks.inode.store(home.inode.0, Relaxed); // Relaxed: published by the store below.
    marks.index.store(home.index, Relaxed);
    marks.moving.store(pack(Phase::Unlinking, run), Release);
}

/// Gives pages back. Nothing links to them any more.
pub fn give(task: &Task, run: Run) {
    let Some(chunk) = chunk_of(task.region, run.first) else { return settle(task) };
    let marks = &task.lane.pages;
    lock_chunk(task, chunk);
    marks.moving.store(pack(Phase::Giving, run), Release);
    free_bits(task.region, chunk, run);
    marks.moving.store(0, Release);
    let free = chunk.used.iter().all(|word| word.load(Relaxed) == 0);
    chunk.lock.unlock();
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
        if free {
            shrink_slow(task, index);
        }
    }
}

/// Keeps the first `len` pages, at least one, of the run last taken and gives the rest back.
pub fn keep(task: &Task, len: u32) {
    let marks = &task.lane.pages;
    let Some((_, run)) = unpack(marks.moving.load(Relaxed)) else { return };
    let Some(chunk) = chunk_of(task.region, run.first) else { return };
    if len >= run.len {
        return;
    }
    lock_chunk(task, chunk);
    free_bits(task.region, chunk, Run { first: PageId(run.first.0 + len), len: run.len - len });
    marks.moving.store(pack(Phase::Taken, Run { first: run.first, len }), Release);
    chunk.lock.unlock();
}

/// Forgets a run that was taken and not linked in.
pub fn give_unused(task: &Task) {
    if let Some((_, run)) = unpack(task.lane.pages.moving.load(Relaxed)) {
        give(task, run);
    }
}

/// The pages of a chunk's bitmap word that exist: page 0 names nothing, the last chunk may be cut short.
pub fn usable(data_pages: u64, chunk: usize, word: usize) -> u64 {
    let first = (chunk * CHUNK_PAGES + word * 64) as u64;
    let end = data_pages + 1; // Pages 1 to data_pages.
    let exists = if end <= first { 0 } else { mask(0, (end - first).min(64) as u32) };
    if first == 0 { exists & !1 } else { exists }
}

/// What is known of the file system under the region's file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// It may have room.
    Unknown,
    /// It was full a moment ago: only what has its room already will do.
    Gone,
}

/// Takes pages from one chunk; none if it is full.
fn take_in(task: &Task, index: usize, want: u32, room: &mut Room) -> Option<Fresh> {
    let region = task.region;
    let chunk = region.chunk(index)?;
    lock_chunk(task, chunk);
    let mut run = None;
    if *room == Room::Unknown {
        run = find(task, chunk, index, want, u32::MAX);
        if run.is_some_and(|run| back(region, chunk, run).is_err()) {
            *room = Room::Gone;
        }
    }
    if *room == Room::Gone {
        run = find(task, chunk, index, want, chunk.populated.load(Relaxed));
    }
    let fresh = run.map(|run| {
        let marks = &task.lane.pages;
        marks.moving.store(pack(Phase::Taking, run), Release);
        let mut content = Content::Zeros;
        words_of(run, |word, mask| {
            // Relaxed: guarded by the chunk's lock.
            chunk.used[word].store(chunk.used[word].load(Relaxed) | mask, Relaxed);
            let dirty = chunk.dirty[word].load(Relaxed);
            if dirty & mask != 0 {
                content = Content::Old;
            }
            if dirty & mask != mask {
                chunk.dirty[word].store(dirty | mask, Relaxed);
            }
        });
        marks.moving.store(pack(Phase::Taken, run), Release);
        marks.next.store(run.first.0 + run.len, Relaxed);
        Fresh { run, content }
    });
    chunk.lock.unlock();
    if let Some(fresh) = &fresh
        && fresh.content == Content::Zeros
        && fresh.run.len == 1
    {
        make_ready(task, fresh.run.first, index);
    }
    fresh
}

/// Makes sure that the pages of a run have room in the region's file, if it has one. The caller holds the chunk's lock.
fn back(region: Region, chunk: &Chunk, run: Run) -> Result<()> {
    let populated = chunk.populated.load(Relaxed); // Relaxed: guarded by the chunk's lock.
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
            chunk.populated.store(populated | missing, Relaxed);
        }
    }
    done
}

/// Asks for room in the region's file for the pages in use. Nobody is at work.
///
/// # Errors
/// As [`Region::back`].
pub fn back_all(region: Region) -> Result<()> {
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

/// Finds free pages in the eighths of a chunk that `eighths` has bits for: from where the lane stands to the end, then from
/// the start.
fn find(task: &Task, chunk: &Chunk, index: usize, want: u32, eighths: u32) -> Option<Run> {
    let data_pages = task.region.header().data_pages.load(Relaxed); // Relaxed: immutable.
    let base = (index * CHUNK_PAGES) as u32;
    let next = task.lane.pages.next.load(Relaxed); // Relaxed: only this lane writes it.
    let from = if next >= base && next < base + CHUNK_PAGES as u32 { next - base } else { 0 };
    let free = |word: usize| match eighths >> word & 1 {
        0 => 0,
        _ => !chunk.used[word].load(Relaxed) & usable(data_pages, index, word),
    };
    let first = first_free(from, &free).or_else(|| first_free(0, &free))?;
    let mut len = 0;
    while len < want && first + len < CHUNK_PAGES as u32 {
        let at = first + len;
        let rest = free(at as usize / 64) >> (at % 64);
        let here = (!rest).trailing_zeros().min(64 - at % 64);
        len += here;
        if here < 64 - at % 64 {
            break;
        }
    }
    Some(Run { first: PageId(base + first), len: len.min(want) })
}

fn first_free(from: u32, free: &dyn Fn(usize) -> u64) -> Option<u32> {
    let start = from as usize / 64;
    for word in start..CHUNK_PAGES / 64 {
        let mut bits = free(word);
        if word == start {
            bits &= !0 << (from % 64);
        }
        if bits != 0 {
            return Some(word as u32 * 64 + bits.trailing_zeros());
        }
    }
    None
}

/// Finds another chunk: one without an owner if there is one, else any with a free page.
#[cold]
fn take_slow(task: &Task, want: u32) -> Result<Fresh> {
    let mut room = Room::Unknown;
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

fn search(task: &Task, want: u32, pass: Pass, room: &mut Room) -> Option<Fresh> {
    let region = task.region;
    let header = region.header();
    let data_pages = header.data_pages.load(Relaxed); // Relaxed: immutable.
    let count = region.chunk_count().min(data_pages as usize / CHUNK_PAGES + 1);
    let start = header.chunk_hint.load(Relaxed) as usize % count; // Relaxed: a hint, the lowest chunk with room.
    for step in 0..count {
        let index = (start + step) % count;
        let Some(chunk) = region.chunk(index) else { continue };
        let has_room = (0..chunk.used.len())
            .any(|word| !chunk.used[word].load(Relaxed) & usable(data_pages, index, word) != 0);
        let is_holed = *room == Room::Gone && chunk.populated.load(Relaxed) == 0; // Relaxed: looked at again inside.
        if !has_room || is_holed || (pass == Pass::Unowned && is_owned(task, chunk, index)) {
            continue;
        }
        if let Some(fresh) = take_in(task, index, want, room) {
            if pass == Pass::Unowned {
                chunk.owner.store(task.lane_id.0, Relaxed); // Relaxed: a hint; two owners share the lock.
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

/// Makes memory for `page` and, while the lane goes on through fresh pages, for more behind it.
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
        // SAFETY: makes memory for pages of the region, changes no byte. Where it fails, the first touch does it.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, task.region.page(page), bytes, MADV_POPULATE_WRITE) };
    }
}

/// Gives a free chunk's memory back to the host, unless it belongs to the reserve.
#[cold]
fn shrink_slow(task: &Task, index: usize) {
    let region = task.region;
    let Some(chunk) = region.chunk(index) else { return };
    if (index as u32) < RESERVE || is_owned(task, chunk, index) {
        return;
    }
    lock_chunk(task, chunk);
    let free = chunk.used.iter().all(|word| word.load(Relaxed) == 0);
    if free && chunk.populated.load(Relaxed) != 0 {
        let first = PageId((index * CHUNK_PAGES) as u32);
        let bytes = CHUNK_PAGES * PAGE_SIZE;
        if discard(region, first, bytes).is_ok() {
            // A death before this loop ends leaves some pages marked dirty that are zeros: they are zeroed again.
            chunk.dirty.iter().for_each(|word| word.store(0, Relaxed));
            chunk.populated.store(0, Relaxed);
        }
    }
    chunk.lock.unlock();
}

/// Gives the memory of pages back to the host; they read as zeros afterwards.
fn discard(region: Region, first: PageId, bytes: usize) -> Result<()> {
    let offset = region.page_offset(first).ok_or(Errno::EINVAL)?;
    if region.fd() < 0 {
        // SAFETY: nobody uses the pages; private memory reads zeros after MADV_DONTNEED.
        return unsafe { lp_abi::syscall!(__NR_madvise, region.page(first), bytes, MADV_DONTNEED) }.map(drop);
    }
    let mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    // SAFETY: nobody uses the pages.
    unsafe { lp_abi::syscall!(__NR_fallocate, region.fd(), mode, offset, bytes) }.map(drop)
}

/// Pages that are free.
pub fn free_count(region: Region) -> u64 {
    let header = region.header();
    let data_pages = header.data_pages.load(Relaxed); // Relaxed: immutable.
    // Chunks behind the limit were never used, but for those that a full file system made others use.
    let limit = (header.chunk_limit.load(Relaxed) as usize).min(region.chunk_count());
    let mut used = 0;
    for index in 0..limit {
        let Some(chunk) = region.chunk(index) else { break };
        for word in 0..chunk.used.len() {
            // Relaxed: a count of a moment.
            used +=
                u64::from((chunk.used[word].load(Relaxed) & usable(data_pages, index, word)).count_ones());
        }
    }
    data_pages.saturating_sub(used)
}

/// Settles the pages that a dead lane was moving. The caller repairs that lane and holds the lock of the pages' inode,
/// or knows that nobody else can reach it.
pub fn repair(task: &Task, lane: LaneId) {
    let region = task.region;
    let marks: &PageMarks = &region.lane(lane).pages;
    let Some((_, run)) = unpack(marks.moving.load(Acquire)) else { return };
    // Whatever was under way under the chunk's lock is finished by whoever takes that lock first.
    if let Some(chunk) = chunk_of(region, run.first) {
        lock_chunk(task, chunk);
        chunk.lock.unlock();
    }
    let Some((phase, mut run)) = unpack(marks.moving.load(Acquire)) else { return };
    let Some(chunk) = chunk_of(region, run.first) else { return marks.moving.store(0, Release) };
    let inode: &Inode = region.inode(InodeId(marks.inode.load(Relaxed)));
    let index = marks.index.load(Relaxed);
    while run.len > 0 {
        run.len -= 1;
        let last = PageId(run.first.0 + run.len);
        let unlinked = !crate::map::names(region, inode, index + u64::from(run.len), last);
        lock_chunk(task, chunk);
        if unlinked {
            free_bits(region, chunk, Run::one(last));
        }
        marks.moving.store(pack(phase, run), Release);
        chunk.lock.unlock();
    }
    marks.moving.store(0, Release);
}
