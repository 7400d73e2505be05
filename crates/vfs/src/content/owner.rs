//! Owners of pages: which inode has each page, and where.
//!
//! A page's owner word is the inverse of its place in a map. It is written before a map names the page and
//! cleared before the page can be taken again. While a file has a page, all versions of the word are equal. A
//! region whose parts are of different ages therefore still says which pages a file has that did not change
//! meanwhile; `lp_fsck::rebuild` reads it. No call does.

use lp_abi::Result;
use lp_region::layout::{CHUNK_PAGES, OWNERS_AT};
use lp_region::sync::AtomicU64;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, PageId, Region};

use crate::content::page::{PageHome, PageRun};

/// Bits of the index in a word: enough for the pages of a region, although a file with holes may have larger
/// indices.
pub const INDEX_BITS: u32 = 29;
const INDEX_SHIFT: u32 = 64 - INDEX_BITS;
const HEIGHT_SHIFT: u32 = 32;

fn pack(home: PageHome, height: u32) -> u64 {
    home.index << INDEX_SHIFT | u64::from(height & 7) << HEIGHT_SHIFT | u64::from(home.inode.0)
}

/// Records the owner of pages taken for `home`: content, or map pages of a height.
pub(crate) fn set(region: Region, home: PageHome, height: u32, run: PageRun) {
    let first = pack(home, height);
    for (step, word) in words(region, run).enumerate() {
        // Relaxed, here and below: read only when nobody uses the region.
        word.store(first.wrapping_add((step as u64) << INDEX_SHIFT), Relaxed);
    }
}

/// Records that pages have no owner. The caller must have them in hand.
pub(crate) fn clear(region: Region, run: PageRun) {
    words(region, run).for_each(|word| word.store(0, Relaxed));
}

fn words(region: Region<'_>, run: PageRun) -> impl Iterator<Item = &AtomicU64> {
    run.pages().filter_map(move |page| region.page_owner(page))
}

/// Allocates space in the region's file for the owner words of a chunk's pages.
pub(crate) fn back(region: Region, chunk: usize) -> Result<()> {
    let bytes = CHUNK_PAGES * size_of::<AtomicU64>();
    region.back(OWNERS_AT + chunk * bytes, bytes)
}

/// Whether a page belongs to the place `home`. A map page, of a height above 0, belongs to any of the indices
/// below it.
pub fn has(region: Region, home: PageHome, height: u32, page: PageId) -> bool {
    let Some(word) = region.page_owner(page).map(|word| word.load(Relaxed)) else { return false };
    let differs = word ^ pack(home, height);
    differs << INDEX_BITS == 0
        && (differs >> INDEX_SHIFT).checked_shr(10 * height).is_none_or(|rest| rest == 0)
}

/// The place in a file's content to which a page belongs, as far as the word can hold it; `None` if the page
/// has no owner or is a map page.
pub fn content_of(region: Region, page: PageId) -> Option<PageHome> {
    let word = region.page_owner(page)?.load(Relaxed);
    let (inode, height) = (InodeId(word as u32), (word >> HEIGHT_SHIFT) as u32 & 7);
    (inode.is_some() && height == 0).then_some(PageHome { inode, index: word >> INDEX_SHIFT })
}

/// Clears the owner of a page. Nobody may use the region.
pub fn forget(region: Region, page: PageId) {
    clear(region, PageRun::one(page));
}
