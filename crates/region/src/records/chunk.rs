//! [`Chunk`]: which of its pages are in use.

use crate::layout::CHUNK_PAGES;
use crate::signed::Signed;
use crate::sync::{AtomicU32, AtomicU64};

/// 2 MiB of data pages. 256 bytes.
#[repr(C, align(64))]
pub struct Chunk {
    /// Lane that prefers to allocate from it. A hint: valid while that lane's `pages.chunk` names the chunk.
    pub owner: AtomicU32,
    /// The eighths whose pages have been populated, or reserved in a region's file, and not given back: one
    /// bit each. Atomic; set by a lane that holds a page of the eighth, cleared by a lane that holds all
    /// pages of the chunk.
    pub populated: AtomicU32,
    /// One bit per page, set while the page is in use. Atomic.
    pub used: [Used; CHUNK_PAGES / USED_PAGES],
    /// One bit per page, set once the page was handed out since its memory was last given back: it may hold
    /// old bytes. Atomic; used only by the page's owner.
    pub dirty: [AtomicU64; 8],
}

/// Number of pages in a word of [`Chunk::used`].
pub const USED_PAGES: usize = 32;

/// A word of [`Chunk::used`]. Notes of its exchanges identify the word by the number of the page.
pub type Used = Signed<32, { (1 << PAGE_BITS) - USED_PAGES as u64 }>;

/// Bits of a page's number.
pub const PAGE_BITS: u32 = 30;

impl Chunk {
    /// The pages in use, of 64.
    #[inline]
    pub fn used(&self, word: usize) -> u64 {
        self.used[2 * word].load().value() | self.used[2 * word + 1].load().value() << 32
    }
}

const _: () = assert!(size_of::<Chunk>() == 256);
