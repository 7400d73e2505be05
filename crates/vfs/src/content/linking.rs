//! Changes of the page map: linking pages in, and unlinking and freeing them.
//!
//! Callers hold the inode's lock. The lane names pages that are being linked in or out, see
//! [`crate::content::page`].

use core::cell::Cell;

use lp_abi::{Errno, Result};
use lp_region::layout::CHUNK_PAGES;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, PageId, Region};

use crate::caller::task::Task;
use crate::content::map::{FANOUT, MAX_HEIGHT, Map, entry, get, piece, span};
use crate::content::run::{Content, PageHome, PageRun};
use crate::content::{owner, page};

/// Makes the map tall enough for `index` and creates its map pages, before `pages` from there are linked. An
/// empty map gets the height for all of them at once, so that no map page comes between them. The caller must
/// hold the inode's lock.
///
/// # Errors
/// `ENOSPC`; `EFBIG` for an index that no map covers.
pub fn prepare(task: &Task, id: InodeId, inode: &Inode, index: u64, pages: u64) -> Result<()> {
    let region = task.region;
    let home = PageHome { inode: id, index };
    let mut map = Map::of(inode);
    let last = if map.root.is_none() { index.saturating_add(pages - 1) } else { index };
    while last >= map.span() {
        if map.height == MAX_HEIGHT {
            return Err(Errno::EFBIG);
        }
        if map.root.is_some() {
            // It covers what was there, but not `index` if the map must grow again.
            let root = page::take_zeroed(task, PageHome { inode: id, index: 0 }, map.height + 1)?;
            // Relaxed: published by the store of the map.
            region.page_words(root)[0].store(map.root.0, Relaxed);
            map.root = root;
        }
        map.height += 1;
        map.store(inode);
        page::settle(task);
    }
    if map.height == 0 {
        return Ok(());
    }
    if map.root.is_none() {
        map.root = page::take_zeroed(task, home, map.height)?;
        map.store(inode);
        page::settle(task);
    }
    let (mut node, mut height) = (map.root, map.height);
    while height > 1 {
        let slot = entry(region, node, height, index);
        let mut next = PageId(slot.load(Relaxed)); // Relaxed: the inode's lock is held.
        if next.is_none() {
            next = page::take_zeroed(task, home, height - 1)?;
            // PAIRS: the acquire loads of lookups.
            slot.store(next.0, Release);
            page::settle(task);
            if height == 2 {
                prepare_ahead(task, id, node, index);
            }
        }
        (node, height) = (next, height - 1);
    }
    Ok(())
}

/// Creates map pages behind the one for `index`, an entry of `node`, if the file is written in sequence: as
/// many as come before it. They lie together, and the content goes on behind them: content of which every
/// 1,024 pages are interrupted by a map page needs a mapping for each part.
#[cold]
fn prepare_ahead(task: &Task, id: InodeId, node: PageId, index: u64) {
    let region = task.region;
    let (words, leaf) = (region.page_words(node), index / FANOUT);
    let at = (leaf % FANOUT) as usize;
    // Relaxed, all: the inode's lock is held.
    let Some(before) = at.checked_sub(1).map(|at| PageId(words[at].load(Relaxed))) else { return };
    if before.is_none() || region.page_words(before)[FANOUT as usize - 1].load(Relaxed) == 0 {
        return;
    }
    for (slot, leaf) in words[at + 1..].iter().zip(leaf + 1..).take(at - 1) {
        if slot.load(Relaxed) != 0 {
            return;
        }
        let home = PageHome { inode: id, index: leaf * FANOUT };
        let Ok(page) = page::take_zeroed(task, home, 1) else { return };
        // PAIRS: the acquire loads of lookups.
        slot.store(page.0, Release);
        page::settle(task);
    }
}

/// Links a run that was taken into a map that [`prepare`] made ready for `index`; the run must end within one
/// map page. It may take the place of pages that the inode borrows. The caller must hold the inode's lock and
/// count the pages that it had not, together with whatever else its change sets.
pub fn link(task: &Task, inode: &Inode, index: u64, run: PageRun) {
    let region = task.region;
    let map = Map::of(inode);
    if map.height == 0 {
        Map { root: run.first, height: 0 }.store(inode);
    } else {
        let leaf = leaf_of(region, map, index);
        let at = (index % FANOUT) as usize;
        for (slot, page) in region.page_words(leaf)[at..].iter().zip(run.pages()) {
            // PAIRS: the acquire loads of lookups: the page's bytes are ready.
            slot.store(page.0, Release);
        }
    }
    page::settle(task);
}

fn leaf_of(region: Region, map: Map, index: u64) -> PageId {
    let (mut node, mut height) = (map.root, map.height);
    while height > 1 {
        node = PageId(entry(region, node, height, index).load(Relaxed)); // Relaxed: the inode's lock is held.
        height -= 1;
    }
    node
}

/// Pages from `index` to the end of its map page: the maximum length of a run linked at `index`. The map must
/// be ready for `index`.
pub(crate) fn room(inode: &Inode, index: u64) -> u32 {
    match Map::of(inode).height {
        0 => 1,
        _ => (FANOUT - index % FANOUT).min(CHUNK_PAGES as u64) as u32,
    }
}

/// Adds pages to an inode's count, inside a `seq` section. The caller must be changing the content, so that
/// its death before the end causes a recount.
#[inline]
pub(crate) fn more_in_section(inode: &Inode, pages: u64) {
    let pages = pages as u32; // A region has fewer than 2^31 pages.
    inode.pages.store(inode.pages.load(Relaxed) + pages, Relaxed); // Relaxed: inside the section.
}

/// Subtracts pages from an inode's count, under the conditions of [`more_in_section`].
#[inline]
pub(crate) fn less_in_section(inode: &Inode, pages: u64) {
    // Relaxed: inside the section.
    inode.pages.store(inode.pages.load(Relaxed).saturating_sub(pages as u32), Relaxed);
}

/// The page at `index`; allocated and zeroed if it was a hole. The caller must hold the inode's lock.
///
/// # Errors
/// Those of [`prepare`].
pub(crate) fn grow(task: &Task, id: InodeId, inode: &Inode, index: u64) -> Result<PageId> {
    let page = get(task.region, inode, index);
    if page.is_some() {
        return Ok(page);
    }
    prepare(task, id, inode, index, 1)?;
    let page = page::take_zeroed(task, PageHome { inode: id, index }, 0)?;
    link(task, inode, index, PageRun::one(page));
    // Relaxed: of a directory only reclaim reads the count, of a symbolic link nobody yet.
    inode.pages.store(inode.pages.load(Relaxed) + 1, Relaxed);
    Ok(page)
}

/// What pages are taken for that a hole gets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Content.
    Content,
    /// Space for content that may come: a hole still to `SEEK_HOLE`.
    Space,
}

/// Fills the holes of `first..end` with zeroed pages and adds their number to `made`. The caller must hold
/// the inode's lock.
///
/// # Errors
/// Those of [`prepare`]; what was filled stays.
pub(crate) fn fill(
    task: &Task,
    id: InodeId,
    inode: &Inode,
    (first, end): (u64, u64),
    purpose: Purpose,
    made: &mut u64,
) -> Result<()> {
    let mut index = first;
    while index < end {
        let piece = piece(task.region, Map::of(inode), index, end - index);
        if piece.page.is_some() {
            // As on tmpfs, where fallocate(2) clears a page that it has taken before. Behind the end, the
            // mark tells space from what a truncation has left to mappings.
            // Relaxed: under the lock.
            let size = inode.size.load(Relaxed).div_ceil(lp_abi::PAGE_SIZE as u64);
            let within = piece.len.min(size.saturating_sub(index));
            if purpose == Purpose::Space {
                owner::set_content(task.region, PageRun { first: piece.page, len: within as u32 });
            }
            index += piece.len;
            continue;
        }
        prepare(task, id, inode, index, piece.len)?;
        let want = piece.len.min(u64::from(room(inode, index))) as u32;
        let fresh = page::take_run(task, PageHome { inode: id, index }, want)?;
        if fresh.content == Content::Old {
            fresh.run.pages().for_each(|page| page::zero(task.region, page, 0, lp_abi::PAGE_SIZE));
        }
        if purpose == Purpose::Space {
            owner::set_space(task.region, fresh.run);
        }
        link(task, inode, index, fresh.run);
        *made += u64::from(fresh.run.len);
        index += u64::from(fresh.run.len);
    }
    Ok(())
}

/// Unlinks the page at `index`, which the map has and which has gone to another inode.
pub(crate) fn unlink_given(region: Region, inode: &Inode, index: u64) {
    let map = Map::of(inode);
    if map.height > 0 && index < map.span() {
        let leaf = leaf_of(region, map, index);
        region.page_words(leaf)[(index % FANOUT) as usize].store(0, Release);
    }
}

/// Unlinks and frees the pages of `first..end`, and the map pages that cover nothing else; what the inode
/// borrows is only unlinked. The caller must hold the inode's lock, be in a `data_seq`
/// section if the inode has content that is read, and have subtracted the pages (`held`) from the inode's
/// count.
pub fn clear(task: &Task, id: InodeId, inode: &Inode, first: u64, end: u64) {
    let map = Map::of(inode);
    let end = end.min(map.span());
    if map.root.is_none() || first >= end {
        return;
    }
    if map.height > 0 {
        // A page has one place in one map, so a walk of an undamaged map ends before this reaches 0.
        let left = Cell::new(task.region.chunk_count() as u64 * CHUNK_PAGES as u64);
        // Relaxed: under the lock.
        let borrows = inode.flags.load(Relaxed) & inode_flags::BORROWS != 0;
        let walk = Clear { task, id, first, end, borrows, left };
        walk.node(map.root, map.height, 0);
    }
    if first == 0 && end == map.span() {
        page::unlinking(task, PageHome { inode: id, index: 0 }, PageRun::one(map.root));
        Map::EMPTY.store(inode);
        page::give(task);
    }
}

struct Clear<'t, 'r> {
    task: &'t Task<'r>,
    id: InodeId,
    first: u64,
    end: u64,
    /// Whether pages of content may be another's.
    borrows: bool,
    /// Map pages that the walk may still visit, because a damaged map may lead to itself.
    left: Cell<u64>,
}

impl Clear<'_, '_> {
    /// Clears the part of the range below the map page `node`, whose content starts at `base`. Recursion
    /// depth: the height.
    fn node(&self, node: PageId, height: u32, base: u64) {
        if height == 1 {
            return self.leaf(node, base);
        }
        let below = span(height - 1);
        let from = self.first.saturating_sub(base) / below;
        let to = (self.end - base).div_ceil(below).min(FANOUT);
        for at in from..to {
            let slot = &self.task.region.page_words(node)[at as usize];
            let child = PageId(slot.load(Relaxed)); // Relaxed: the inode's lock is held.
            if child.is_none() || self.left.get() == 0 {
                continue;
            }
            self.left.set(self.left.get() - 1);
            let start = base + at * below;
            self.node(child, height - 1, start);
            if self.first <= start && start + below <= self.end {
                page::unlinking(self.task, PageHome { inode: self.id, index: start }, PageRun::one(child));
                slot.store(0, Release);
                page::give(self.task);
            }
        }
    }

    /// Whether a page of content is not the inode's. The common inode that has it may be gone if a lane died.
    fn is_anothers(&self, page: PageId) -> bool {
        self.borrows && !owner::is_of(self.task.region, page, self.id)
    }

    /// Clears entries of a leaf, consecutive pages together.
    fn leaf(&self, node: PageId, base: u64) {
        let words = self.task.region.page_words(node);
        let mut at = self.first.saturating_sub(base);
        let to = (self.end - base).min(FANOUT);
        while at < to {
            let first = words[at as usize].load(Relaxed); // Relaxed: the inode's lock is held.
            if first == 0 {
                at += 1;
                continue;
            }
            if self.is_anothers(PageId(first)) {
                words[at as usize].store(0, Release);
                at += 1;
                continue;
            }
            // A run stays within one chunk.
            let most = (CHUNK_PAGES as u64 - u64::from(first) % CHUNK_PAGES as u64).min(to - at);
            let len = (1..most)
                .take_while(|step| {
                    let next = first.wrapping_add(*step as u32);
                    words[(at + step) as usize].load(Relaxed) == next && !self.is_anothers(PageId(next))
                })
                .count() as u32
                + 1;
            let run = PageRun { first: PageId(first), len };
            page::unlinking(self.task, PageHome { inode: self.id, index: base + at }, run);
            (at..at + u64::from(len)).for_each(|step| words[step as usize].store(0, Release));
            page::give(self.task);
            at += u64::from(len);
        }
    }
}
