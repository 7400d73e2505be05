//! Runs of pages and their places: what all modules of content pass to each other.

use lp_region::layout::CHUNK_PAGES;
use lp_region::{InodeId, PageId};

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

    /// Calls `visit(word, mask)` for the words of 64 pages that it covers in its chunk.
    pub(crate) fn words(self, mut visit: impl FnMut(usize, u64)) {
        let first = self.first.0 % CHUNK_PAGES as u32;
        let end = (first + self.len).min(CHUNK_PAGES as u32);
        let mut at = first;
        while at < end {
            let bit = at % 64;
            let len = (64 - bit).min(end - at);
            visit(at as usize / 64, u64::MAX >> (64 - len) << bit);
            at += len;
        }
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
