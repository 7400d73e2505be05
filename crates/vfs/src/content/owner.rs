//! Owners of pages: which inode has each page, and where.
//!
//! A page's owner word is the inverse of its place in a map. It is written before a map names the page and
//! cleared before the page can be taken again. While a file has a page, all versions of the word name the
//! same place, but for content that files of a region in memory share ([`crate::inodes::reflink`]). A region
//! whose parts are of different ages therefore still says which pages a file has that did not change
//! meanwhile; `lp_fsck::rebuild` reads it. Calls ask it only whether a page was taken as space by
//! fallocate(2) and not written since.

use core::cell::Cell;
use core::ops::Range;

use lp_abi::{Errno, Result};
use lp_region::layout::{CHUNK_OWNER_SLAB, CHUNK_PAGES, CHUNKS};
use lp_region::sync::AtomicU64;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, PageId, Region};

use crate::content::map::{FANOUT, Map};
use crate::content::run::{PageHome, PageRun};

/// Bits of the index in a word: enough for the pages of a region, although a file with holes may have larger
/// indices.
pub const INDEX_BITS: u32 = 29;
/// Chunks whose owner words get space at once: 64 KiB of them.
const NEIGHBOURS: usize = 16;
const INDEX_SHIFT: u32 = 64 - INDEX_BITS;
const HEIGHT_SHIFT: u32 = 32;

fn pack(home: PageHome, height: u32) -> u64 {
    home.index << INDEX_SHIFT | u64::from(height & 7) << HEIGHT_SHIFT | u64::from(home.inode.0)
}

/// Records the owner of pages taken for `home`: content, or map pages of a height.
pub(crate) fn set(region: Region, home: PageHome, height: u32, run: PageRun) {
    let first = pack(home, height);
    for (step, word) in words(region, run).enumerate() {
        // Relaxed, here and below: the map that names the page is published afterwards.
        word.store(first.wrapping_add((step as u64) << INDEX_SHIFT), Relaxed);
    }
}

/// Which pages of a map change hands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// All of them.
    All,
    /// The map pages, but no content.
    Map,
}

/// Makes an inode the owner of pages of a map, of which another was until now. Both must be the caller's
/// alone to change. Idempotent.
pub(crate) fn hand_over(region: Region, map: Map, handed: Handed, to: InodeId) {
    let (root, height) = map.parts();
    // A page has one place in one map, so a walk of an undamaged map ends before this reaches 0.
    let left = Cell::new(region.chunk_count() as u64 * CHUNK_PAGES as u64);
    if root.is_some() {
        HandOver { region, least: u32::from(handed == Handed::Map), to, left }.below(root, height);
    }
}

struct HandOver<'r> {
    region: Region<'r>,
    /// The height of the lowest pages that change hands.
    least: u32,
    to: InodeId,
    left: Cell<u64>,
}

impl HandOver<'_> {
    /// Hands over a page of a map, and those below it. Recursion depth: the height.
    fn below(&self, page: PageId, height: u32) {
        if self.left.get() == 0 || height < self.least {
            return;
        }
        self.left.set(self.left.get() - 1);
        give_to(self.region, page, self.to);
        if height > self.least {
            let children = self.region.page_words(page)[..FANOUT as usize].iter();
            // PAIRS: the release store of the entry in `linking::link`.
            for child in children.map(|word| PageId(word.load(Acquire))).filter(|child| child.is_some()) {
                self.below(child, height - 1);
            }
        }
    }
}

/// Makes an inode the owner of a page that another had at the same place.
pub(crate) fn give_to(region: Region, page: PageId, to: InodeId) {
    if let Some(word) = region.page_owner(page) {
        word.store(word.load(Relaxed) & !u64::from(u32::MAX) | u64::from(to.0), Relaxed);
    }
}

/// Whether a page belongs to an inode.
pub(crate) fn is_of(region: Region, page: PageId, inode: InodeId) -> bool {
    region.page_owner(page).is_some_and(|word| inode_of(word.load(Relaxed)) == inode)
}

/// In place of the height of content: the page was taken as space and may never have been written.
const SPACE: u64 = 7;

/// Records that pages of content, whose owner is recorded, were taken as space for content that may come.
pub(crate) fn set_space(region: Region, run: PageRun) {
    for word in words(region, run) {
        word.store(word.load(Relaxed) | SPACE << HEIGHT_SHIFT, Relaxed);
    }
}

/// Records that pages of content are more than space.
pub(crate) fn set_content(region: Region, run: PageRun) {
    for word in words(region, run) {
        let seen = word.load(Relaxed);
        if height(seen) == SPACE {
            word.store(content(seen), Relaxed);
        }
    }
}

/// Whether a page of content was taken as space and not written since, other than through a mapping.
pub(crate) fn is_space(region: Region, page: PageId) -> bool {
    // Relaxed: changes inside a section of `data_seq`, which validates this.
    region.page_owner(page).is_some_and(|word| height(word.load(Relaxed)) == SPACE)
}

fn height(word: u64) -> u64 {
    word >> HEIGHT_SHIFT & 7
}

/// Records that pages have no owner. The caller must have them in hand.
pub(crate) fn clear(region: Region, run: PageRun) {
    words(region, run).for_each(|word| word.store(0, Relaxed));
}

fn words(region: Region<'_>, run: PageRun) -> impl Iterator<Item = &AtomicU64> {
    run.pages().filter_map(move |page| region.page_owner(page))
}

/// Allocates space in the region's file for the owner words of a chunk's pages and, if there is enough, for
/// those of its neighbours: a page for each chunk, between others' space, would be an extent for each.
pub(crate) fn back(region: Region, chunk: usize) -> Result<()> {
    const { assert!(CHUNKS.is_multiple_of(NEIGHBOURS)) };
    let back = |chunks: Range<usize>| {
        let bytes = CHUNK_OWNER_SLAB.bytes(chunks);
        region.back(bytes.start, bytes.len())
    };
    let first = chunk - chunk % NEIGHBOURS;
    match back(first..first + NEIGHBOURS) {
        Err(Errno::ENOSPC) => back(chunk..chunk + 1),
        done => done,
    }
}

/// The word of a page of space as that of content.
fn content(word: u64) -> u64 {
    if height(word) == SPACE { word & !(SPACE << HEIGHT_SHIFT) } else { word }
}

/// Whether a page belongs to the place `home`. A map page, of a height above 0, belongs to any of the indices
/// below it.
pub fn has(region: Region, home: PageHome, height: u32, page: PageId) -> bool {
    let Some(word) = region.page_owner(page).map(|word| content(word.load(Relaxed))) else { return false };
    let differs = word ^ pack(home, height);
    differs << INDEX_BITS == 0
        && (differs >> INDEX_SHIFT).checked_shr(10 * height).is_none_or(|rest| rest == 0)
}

/// The place in a file's content to which a page belongs, as far as the word can hold it; `None` if the page
/// has no owner or is a map page.
pub fn content_of(region: Region, page: PageId) -> Option<PageHome> {
    let word = content(region.page_owner(page)?.load(Relaxed));
    let inode = inode_of(word);
    (inode.is_some() && height(word) == 0).then_some(PageHome { inode, index: word >> INDEX_SHIFT })
}

/// The inode that an owner word names.
pub const fn inode_of(word: u64) -> InodeId {
    InodeId(word as u32)
}

/// Clears the owner of a page. Nobody may use the region.
pub fn forget(region: Region, page: PageId) {
    clear(region, PageRun::one(page));
}
