//! Files that have some pages in common with others: a map of their own, in which pages may be those of a
//! common inode ([`super::membership`]).
//!
//! What is borrowed is replaced before it changes (`own`), page by page: a copy of the page takes its place in
//! the map. Its bytes are the same, and nobody changes or frees the page that it replaces while the file is a
//! member, so readers need not notice until that ends.

use core::ops::Range;

use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, PageId, Region};

use crate::caller::task::Task;
use crate::content::map::{self, Extent};
use crate::content::run::{Content, Fresh, PageHome, PageRun};
use crate::content::source::FileContent;
use crate::content::{fill, linking, owner, page};
use crate::inodes::hidden;
use crate::inodes::membership::{Change, Step, common_of, is_only_member};

/// Most pages that are replaced before they are written to.
const AHEAD: u64 = 64;

/// Whether a page of a file that borrows is the common inode's. The caller must hold the lock.
#[cold]
pub(crate) fn is_borrowed(region: Region, inode: &Inode, page: PageId) -> bool {
    owner::is_of(region, page, common_of(inode).id)
}

/// Gives a file that has the map of a common inode one of its own. The caller must hold the lock, here and
/// below, and be a writer of a mount.
///
/// # Errors
/// `ENOSPC`.
pub(super) fn part(task: &Task, id: InodeId, inode: &Inode) -> Result<()> {
    // Relaxed throughout: immutable, under the lock, or what nobody can reach yet.
    let made = hidden::create(task, inode.root.load(Relaxed))?;
    let next = task.region.inode(made.id);
    next.flags.store(next.flags.load(Relaxed) | inode_flags::BORROWS, Relaxed);
    next.tail.store(inode.tail.load(Relaxed), Relaxed);
    // Half made.
    next.data_seq.begin();
    let mut index = 0;
    while let Some(piece) = map::next(task.region, inode, &mut index) {
        if let Err(errno) = borrow(task, (made.id, next), index, piece, inode.pages.load(Relaxed)) {
            hidden::discard(task, made.id);
            return Err(errno);
        }
        index += piece.len;
    }
    next.pages.store(inode.pages.load(Relaxed), Relaxed);
    next.data_seq.end();
    Change { next: made, ..Change::new(Step::Part, id, common_of(inode)) }.carry_out(task);
    Ok(())
}

/// Links pages that another inode has into a map that is to have `all` pages.
fn borrow(task: &Task, (id, inode): (InodeId, &Inode), index: u64, piece: Extent, all: u32) -> Result<()> {
    let mut done = 0;
    while done < piece.len {
        let at = index + done;
        linking::prepare(task, id, inode, at, u64::from(all))?;
        let len = (piece.len - done).min(u64::from(linking::room(inode, at))) as u32;
        linking::link(task, inode, at, PageRun { first: PageId(piece.page.0 + done as u32), len });
        done += u64::from(len);
    }
    Ok(())
}

/// Replaces what a file borrows of some pages, and gets all that it borrows if no other file has it. Ends the
/// membership of a file that has been rewritten to its end, if nothing is left.
///
/// # Errors
/// `ENOSPC`; what was replaced stays so.
pub(super) fn own(task: &Task, id: InodeId, inode: &Inode, pages: Range<u64>) -> Result<()> {
    let (mut index, mut end, mut replaced) = (pages.start, pages.end, 0);
    while let Some(run) = next(task.region, inode, &mut index, end) {
        if is_only_member(task.region, inode) {
            Change::new(Step::Merge, id, common_of(inode)).carry_out(task);
            return Ok(());
        }
        match replace(task, id, inode, index, run) {
            Ok(len) => {
                index += u64::from(len);
                replaced = index;
            }
            Err(errno) if index < pages.end => return Err(errno),
            Err(_) => break,
        }
        end = end.max(pages.start + ahead(task.region, inode, pages.start));
    }
    let size = inode.size.load(Relaxed); // Relaxed: under the lock.
    if replaced >= size.div_ceil(PAGE_SIZE as u64) && next(task.region, inode, &mut 0, u64::MAX).is_none() {
        detach(task, id, inode);
    }
    Ok(())
}

/// Number of pages from `index` on that are worth replacing together: as many as the file has replaced right
/// before them, so that one that is written in sequence does not replace each alone.
fn ahead(region: Region, inode: &Inode, index: u64) -> u64 {
    let is_own = |index: &u64| {
        let page = map::get(region, inode, *index);
        page.is_some() && !is_borrowed(region, inode, page)
    };
    (index.saturating_sub(AHEAD)..index).rev().take_while(is_own).count() as u64
}

/// The first pages at or after `index`, which is moved there, and before `end` that are borrowed.
fn next(region: Region, inode: &Inode, index: &mut u64, end: u64) -> Option<PageRun> {
    while let Some(piece) = map::next(region, inode, index) {
        let pages = piece.page.0..piece.page.0 + piece.len.min(end.saturating_sub(*index)) as u32;
        let mut skipped = pages.clone();
        if let Some(first) = skipped.find(|page| is_borrowed(region, inode, PageId(*page))) {
            *index += u64::from(first - pages.start);
            let len = (first..pages.end).take_while(|page| is_borrowed(region, inode, PageId(*page))).count();
            return Some(PageRun { first: PageId(first), len: len as u32 });
        }
        *index += piece.len;
        if *index >= end {
            return None;
        }
    }
    None
}

/// Puts copies in the place of the borrowed pages at `index`. Returns their number, at least 1.
fn replace(task: &Task, id: InodeId, inode: &Inode, index: u64, borrowed: PageRun) -> Result<u32> {
    let want = borrowed.len.min(linking::room(inode, index));
    let Fresh { run, content } = page::take_run(task, PageHome { inode: id, index }, want)?;
    let mut from = &mut FileContent::new(task.region, inode, index * PAGE_SIZE as u64);
    let bytes = run.len as usize * PAGE_SIZE;
    let got = fill::into_pages(task, &mut from, run.first, u64::from(run.len), 0, bytes);
    // The file ends in the last page.
    if got <= bytes - PAGE_SIZE {
        page::give(task);
        return Err(Errno::EIO);
    }
    if content == Content::Old {
        let last = PageId(run.first.0 + run.len - 1);
        page::zero(task.region, last, got - (bytes - PAGE_SIZE), PAGE_SIZE);
    }
    linking::link(task, inode, index, run);
    Ok(run.len)
}

/// Ends the membership of a file that borrows nothing any more.
pub(super) fn detach(task: &Task, id: InodeId, inode: &Inode) {
    Change::new(Step::Detach, id, common_of(inode)).carry_out(task);
}
