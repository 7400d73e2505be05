//! The page map: which page holds which part of an inode's content.
//!
//! [`Inode::map`] holds the root page and the height in one word. Height 0: the root is page 0 of the
//! content. Height h: the root is a map page of 1,024 entries, each the root of a map of height h - 1, so
//! that height 6 covers everything that an `off_t` can address. An entry of 0 is a hole. Entries change in
//! one store each, after the page's bytes are ready, so every state between two stores is a map that readers
//! can use; they validate with `data_seq` afterwards. [`crate::content::linking`] makes the changes.

use lp_region::layout::CHUNK_PAGES;
use lp_region::records::Inode;
use lp_region::sync::AtomicU32;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{PageId, Region};

use crate::caller::task::Task;

/// Entries of a map page.
pub const FANOUT: u64 = 1024;
/// Tallest map.
pub const MAX_HEIGHT: u32 = 6;
/// Exceeds the last index of any map.
pub(crate) const END: u64 = u64::MAX;

/// Root and height of a map, from one load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map {
    pub(super) root: PageId,
    pub(super) height: u32,
}

impl Map {
    /// The map of no content.
    pub(crate) const EMPTY: Map = Map { root: PageId::NONE, height: 0 };

    /// The map of an inode.
    #[inline(always)]
    pub fn of(inode: &Inode) -> Map {
        // PAIRS: the release store in `store`: the root page is ready.
        let word = inode.map.load(Acquire);
        Map::from_parts(word as u32, (word >> 32) as u32)
    }

    /// A map by its root page and its height.
    #[inline(always)]
    pub(crate) fn from_parts(root: u32, height: u32) -> Map {
        Map { root: PageId(root), height: height.min(MAX_HEIGHT) }
    }

    /// Its root page and its height.
    pub(crate) fn parts(self) -> (PageId, u32) {
        (self.root, self.height)
    }

    /// Makes it the inode's. The caller must hold the inode's lock.
    pub(crate) fn store(self, inode: &Inode) {
        // PAIRS: the acquire load in `of`.
        inode.map.store(u64::from(self.height) << 32 | u64::from(self.root.0), Release);
    }

    /// Number of pages that a map of this height covers.
    pub fn span(self) -> u64 {
        span(self.height)
    }
}

/// Pages below an entry of a map page at `height` 1, 2, ...; a map of `height` covers `span(height)`.
pub(super) fn span(height: u32) -> u64 {
    1 << (10 * height)
}

/// The entry of a map page at `height` on the path to `index`.
pub(super) fn entry<'r>(region: Region<'r>, node: PageId, height: u32, index: u64) -> &'r AtomicU32 {
    &region.page_words(node)[(index >> (10 * (height - 1))) as usize & (FANOUT as usize - 1)]
}

/// The page at `index`; none for a hole.
#[inline]
pub(crate) fn lookup(region: Region, map: Map, index: u64) -> PageId {
    match map.height {
        0 if index == 0 => map.root,
        // PAIRS: the release store of the entry in `linking::link`.
        1 if index < FANOUT => PageId(region.page_words(map.root)[index as usize].load(Acquire)),
        0 | 1 => PageId::NONE,
        _ => lookup_slow(region, map, index),
    }
}

fn lookup_slow(region: Region, map: Map, index: u64) -> PageId {
    if index >= map.span() {
        return PageId::NONE;
    }
    let (mut node, mut height) = (map.root, map.height);
    while height > 0 && node.is_some() {
        // PAIRS: the release store of the entry in `linking::link`.
        node = PageId(entry(region, node, height, index).load(Acquire));
        height -= 1;
    }
    node
}

/// The page at `index` of an inode's content; none for a hole.
#[inline]
pub fn get(region: Region, inode: &Inode, index: u64) -> PageId {
    lookup(region, Map::of(inode), index)
}

/// The page of content that consists of one page at most; `None` if the map is higher.
#[inline(always)]
pub(crate) fn only_page(inode: &Inode) -> Option<PageId> {
    let map = Map::of(inode);
    (map.height == 0).then_some(map.root)
}

/// The page at `index`, if a map of height 0 or 1 has it, as for most files.
#[inline(always)]
pub(crate) fn get_low(task: &Task<'_>, inode: &Inode, index: u64) -> PageId {
    let map = Map::of(inode);
    if map.height == 1 && index < FANOUT {
        // PAIRS: the release store of the entry in `linking::link`.
        let words = task.region.page_words_from(task.first_page, map.root);
        return PageId(words[index as usize].load(Acquire));
    }
    if map.height == 0 && index == 0 { map.root } else { PageId::NONE }
}

/// A piece of content: consecutive pages, or a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First page; none for a hole.
    pub page: PageId,
    /// Number of pages of content that it covers, at least 1.
    pub len: u64,
}

/// The first piece at or after `index`, which is moved there, that is no hole; none if there is none. Whoever
/// asks may have cleared what came before.
pub fn next(region: Region, inode: &Inode, index: &mut u64) -> Option<Extent> {
    loop {
        let map = Map::of(inode);
        if *index >= map.span() || map.root.is_none() {
            return None;
        }
        let piece = piece(region, map, *index, map.span() - *index);
        if piece.page.is_some() {
            return Some(piece);
        }
        *index += piece.len;
    }
}

/// The piece that starts at `index`, at most `most` pages long.
pub(crate) fn piece(region: Region, map: Map, index: u64, most: u64) -> Extent {
    let most = most.max(1);
    if map.root.is_none() || index >= map.span() {
        return Extent { page: PageId::NONE, len: most };
    }
    let (mut node, mut height) = (map.root, map.height);
    while height > 1 {
        let below = span(height - 1);
        let next = PageId(entry(region, node, height, index).load(Acquire));
        if next.is_none() {
            return Extent { page: PageId::NONE, len: (below - index % below).min(most) };
        }
        (node, height) = (next, height - 1);
    }
    if height == 0 {
        return Extent { page: node, len: 1 };
    }
    let words = region.page_words(node);
    let at = (index % FANOUT) as usize;
    let first = words[at].load(Acquire);
    let rest = &words[at + 1..];
    let follows = |step: usize, word: u32| {
        if first == 0 { word == 0 } else { word == first.wrapping_add(step as u32 + 1) }
    };
    let len = 1 + rest
        .iter()
        .take((most - 1) as usize)
        .enumerate()
        .take_while(|(step, word)| follows(*step, word.load(Acquire)))
        .count();
    Extent { page: PageId(first), len: len as u64 }
}

/// Whether the inode's map names `page` on the path to `index`.
pub(crate) fn names(region: Region, inode: &Inode, index: u64, page: PageId) -> bool {
    let map = Map::of(inode);
    let (mut node, mut height) = (map.root, map.height);
    while node.is_some() {
        if node == page {
            return true;
        }
        if height == 0 || index >= map.span() {
            return false;
        }
        node = PageId(entry(region, node, height, index).load(Relaxed));
        height -= 1;
    }
    false
}

/// Counts the pages of content: the value of [`Inode::pages`] after a death.
pub fn count(region: Region, inode: &Inode) -> u64 {
    held(region, inode, 0, END)
}

/// Number of pages of content in `first..end`.
pub(crate) fn held(region: Region, inode: &Inode, first: u64, end: u64) -> u64 {
    let map = Map::of(inode);
    let (mut index, mut pages) = (first, 0);
    let end = end.min(map.span());
    // More pages than the region has: a damaged map, which may lead to itself.
    while index < end && pages < region.chunk_count() as u64 * CHUNK_PAGES as u64 {
        let piece = piece(region, map, index, end - index);
        if piece.page.is_some() {
            pages += piece.len;
        }
        index += piece.len;
    }
    pages
}
