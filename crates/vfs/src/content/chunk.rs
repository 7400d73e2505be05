//! The bits that say which pages of a chunk are in use. Runs are allocated and freed without a lock.
//!
//! The bits are in words of 32 that also say which lane changed the word last ([`lp_region::signed`]), and
//! are changed word by word. The lane names the pages that it has in hand ([`PageMarks::moving`]) as a run.
//! The run grows at its end with each word of bits taken, and shrinks there with each given back. The lane's
//! note records what a word is exchanged for, so a burial of a lane that died in between knows whether its
//! run has grown or shrunk (`settle`). Nobody waits for a stopped lane: its pages stay in use, and all others
//! are available.

use lp_region::lane::{Lane, PageMarks};
use lp_region::layout::CHUNK_PAGES;
use lp_region::records::{Chunk, PAGE_BITS, USED_PAGES, Used};
use lp_region::signed::Note;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{LaneId, PageId, Region};

use crate::content::owner;
use crate::content::run::PageRun;

const LEN_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = PAGE_BITS + 6;

/// The effect of exchanging bits of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// They are added to the run.
    Take = 1,
    /// They are removed from the run.
    Give = 2,
}

fn what(step: Step, part: PageRun) -> u64 {
    (step as u64) << KIND_SHIFT | u64::from(part.len) << PAGE_BITS | u64::from(part.first.0)
}

/// Decodes a note: consecutive pages of one word; `None` if it is empty.
fn noted(note: &Note) -> Option<(Step, PageRun)> {
    let what = Used::noted(note);
    let step = match what >> KIND_SHIFT {
        1 => Step::Take,
        2 => Step::Give,
        _ => return None,
    };
    let len = (what >> PAGE_BITS) as u32 & 63;
    Some((step, PageRun { first: PageId(what as u32 & ((1 << PAGE_BITS) - 1)), len }))
}

/// The pages that a lane has in hand; `None` if it has none.
#[inline]
pub(crate) fn named(marks: &PageMarks) -> Option<PageRun> {
    let word = marks.moving.load(Acquire);
    let len = (word >> LEN_SHIFT) as u32;
    (len != 0).then_some(PageRun { first: PageId(word as u32), len: len.min(CHUNK_PAGES as u32) })
}

/// Records the pages that the lane has in hand.
#[inline]
pub(crate) fn name(marks: &PageMarks, run: PageRun) {
    let word = if run.len == 0 { 0 } else { u64::from(run.len) << LEN_SHIFT | u64::from(run.first.0) };
    // Release: a reader that sees them named, or no longer named, sees what was done before.
    marks.moving.store(word, Release);
}

/// The pages that a lane names as in hand, in use or not, linked in or not.
pub fn in_hand(lane: &Lane) -> impl Iterator<Item = PageId> {
    let part = noted(&lane.pages.note).map(|(_, part)| part);
    named(&lane.pages).into_iter().chain(part).flat_map(PageRun::pages)
}

fn notes<'r>(region: Region<'r>) -> impl Fn(u32) -> &'r Note {
    move |lane| &region.lane(LaneId(lane)).pages.note
}

/// The word of bits that contains a page's; `None` beyond the last chunk.
fn word_of<'r>(region: Region<'r>, page: PageId) -> Option<&'r Used> {
    let chunk = region.chunk(page.index() / CHUNK_PAGES)?;
    Some(&chunk.used[page.index() % CHUNK_PAGES / USED_PAGES])
}

/// The bits of `part`, consecutive pages of one word.
fn bits(part: PageRun) -> u64 {
    ((1 << part.len) - 1) << (part.first.0 % USED_PAGES as u32)
}

/// The pages of 64 that exist: page 0 is null, and the last chunk may be incomplete.
pub fn usable(data_pages: u64, chunk: usize, word: usize) -> u64 {
    let first = (chunk * CHUNK_PAGES + word * 64) as u64;
    let end = data_pages + 1; // Pages 1 to data_pages.
    let exists = match end.saturating_sub(first) {
        len @ 0..64 => (1 << len) - 1,
        _ => !0,
    };
    if first == 0 { exists & !1 } else { exists }
}

/// A chunk, and the eighths from which pages may be taken.
#[derive(Clone, Copy)]
pub(crate) struct ChunkPick<'r> {
    pub(crate) region: Region<'r>,
    pub(crate) chunk: &'r Chunk,
    pub(crate) index: usize,
    /// A bit for each eighth.
    pub(crate) eighths: u32,
}

impl ChunkPick<'_> {
    /// The pages of 64 that can be taken.
    fn free(&self, word: usize) -> u64 {
        !self.chunk.used(word) & self.possible(word)
    }

    /// The first page that can be taken, searching from `from` and then from the chunk's start.
    fn first_free(&self, from: u32) -> Option<u32> {
        let start = from as usize / 64;
        let ahead = (start..8).map(|word| {
            let behind = if word == start { from % 64 } else { 0 };
            (word, self.free(word) & !0 << behind)
        });
        let (word, bits) =
            ahead.chain((0..=start).map(|word| (word, self.free(word)))).find(|(_, bits)| *bits != 0)?;
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    /// Takes up to `want` consecutive pages for a lane that has none in hand: the first available from
    /// `from`, and those after it. The caller must own the lane.
    pub(crate) fn take(&self, lane: &Lane, from: u32, want: u32) -> Option<PageRun> {
        let base = (self.index * CHUNK_PAGES) as u32;
        loop {
            let first = self.first_free(from)?;
            let mut run = PageRun { first: PageId(base + first), len: 0 };
            while run.len < want && first + run.len < CHUNK_PAGES as u32 {
                let at = first + run.len;
                let len = self.take_part(lane, at, want - run.len);
                run.len += len;
                name(&lane.pages, run);
                lane.pages.note.clear();
                if len == 0 || !(at + len).is_multiple_of(USED_PAGES as u32) {
                    break;
                }
            }
            // Otherwise another lane has the first page by this time.
            if run.len != 0 {
                return Some(run);
            }
        }
    }

    /// Takes up to `want` free pages from page `at` of the chunk, within one word. Returns their number. The
    /// lane's note stays set.
    fn take_part(&self, lane: &Lane, at: u32, want: u32) -> u32 {
        let word = &self.chunk.used[at as usize / USED_PAGES];
        let first = PageId((self.index * CHUNK_PAGES) as u32 + at);
        loop {
            let seen = word.load();
            let half = at / USED_PAGES as u32 % 2 * USED_PAGES as u32;
            let possible = self.possible(at as usize / 64) >> half & u64::from(u32::MAX);
            let rest = (possible & !seen.value()) >> (at % USED_PAGES as u32);
            let len = rest.trailing_ones().min(want);
            if len == 0 {
                return 0;
            }
            let part = PageRun { first, len };
            let new = seen.value() | bits(part);
            if word.exchange(lane.number(), seen, new, what(Step::Take, part), notes(self.region)) {
                return len;
            }
        }
    }

    /// The pages of 64 that could be taken if they were free.
    fn possible(&self, word: usize) -> u64 {
        let data_pages = self.region.header().data_pages.load(Relaxed); // Relaxed: immutable.
        if self.eighths >> word & 1 == 0 { 0 } else { usable(data_pages, self.index, word) }
    }
}

/// Frees the pages that a lane has in hand, except the first `keep`. Nothing may link to them. The caller
/// must own the lane, or be burying it.
pub(crate) fn give(region: Region, lane: &Lane, keep: u32) {
    let marks = &lane.pages;
    while let Some(run) = named(marks).filter(|run| run.len > keep) {
        let end = run.first.0.saturating_add(run.len);
        // As much of the end as lies in one word.
        let len = (end - 1) % USED_PAGES as u32 + 1;
        let part_len = len.min(run.len - keep);
        let part = PageRun { first: PageId(end - part_len), len: part_len };
        // A dead lane may leave a part that is free already, whose pages another lane may have taken;
        // `settle` has removed that part from the run. Where no page has space yet, the owner words have none
        // either, and nobody has written any.
        if region
            .chunk(part.first.index() / CHUNK_PAGES)
            .is_some_and(|chunk| chunk.populated.load(Relaxed) != 0)
        {
            owner::clear(region, part);
        }
        if let Some(word) = word_of(region, part.first) {
            loop {
                let seen = word.load();
                let new = seen.value() & !bits(part);
                if word.exchange(lane.number(), seen, new, what(Step::Give, part), notes(region)) {
                    break;
                }
            }
        }
        name(marks, PageRun { len: run.len - part_len, ..run });
        marks.note.clear();
    }
}

/// Makes the run that a dead lane names equal what it has in hand. The caller must be burying the lane.
pub(crate) fn settle(region: Region, lane: &Lane) {
    let marks = &lane.pages;
    let Some((step, part)) = noted(&marks.note) else { return };
    let took_effect =
        word_of(region, part.first).is_some_and(|word| word.took_effect(lane.number(), &marks.note));
    if took_effect {
        // A run that the part neither continues nor ends is an earlier one.
        let meets =
            |run: &PageRun| (run.first.0..=run.first.0.saturating_add(run.len)).contains(&part.first.0);
        let first = named(marks).filter(meets).map_or(part.first, |run| run.first);
        let end = match step {
            Step::Take => part.first.0 + part.len,
            Step::Give => part.first.0,
        };
        name(marks, PageRun { first, len: end.saturating_sub(first.0) });
    }
    marks.note.clear();
}
