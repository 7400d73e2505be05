//! Removing content: what lies beyond an end, or a range.

use lp_abi::PAGE_SIZE;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef, PageId, ProcessId};

use crate::caller::task::Task;
use crate::content::run::PageRun;
use crate::content::{backing, bare, linking, map, owner, page};

/// Number of pages that [`cut`] will free. The caller must hold the lock.
pub(crate) fn behind(task: &Task, id: InodeId, inode: &Inode, size: u64) -> u64 {
    going(task, id, inode, size.div_ceil(PAGE_SIZE as u64), map::END)
}

/// Number of pages that [`drop_pages`] will free. The caller must hold the lock.
pub(crate) fn going(task: &Task, id: InodeId, inode: &Inode, first: u64, end: u64) -> u64 {
    let flags = inode.flags.load(Relaxed);
    if flags & inode_flags::MAPPED != 0 {
        if is_mapped(task, InodeRef { id, generation: inode.generation.load(Relaxed) }) {
            return 0;
        }
        // Whoever ended the last mapping died before it cleared the flag.
        inode.flags.store(flags & !(inode_flags::MAPPED | inode_flags::WRITABLE_MAP), Relaxed);
    }
    map::held(task.region, inode, first, end)
}

/// Whether any process maps the inode. The caller must hold its lock.
pub(crate) fn is_mapped(task: &Task, of: InodeRef) -> bool {
    mappers(task, of).next().is_some()
}

/// The process of each mapping of the inode.
fn mappers(task: &Task, of: InodeRef) -> impl Iterator<Item = ProcessId> {
    // Relaxed, both: under the lock, whoever maps it later sees what the caller has done.
    let maps = task.region.mappings().filter(move |record| record.inode.load(Relaxed) == of.to_word());
    maps.map(|record| ProcessId(record.process.load(Relaxed)))
}

/// Removes what lies beyond `size`. The caller must hold the lock, be in a `data_seq` section and have
/// subtracted [`behind`] from the inode's page count.
pub(crate) fn cut(task: &Task, id: InodeId, inode: &Inode, size: u64) {
    cut_by(task, id, inode, size, task.process_id);
}

/// [`cut`] in place of a process that died in it.
pub(crate) fn cut_again(task: &Task, id: InodeId, inode: &Inode, size: u64) {
    cut_by(task, id, inode, size, ProcessId::NONE);
}

fn cut_by(task: &Task, id: InodeId, inode: &Inode, size: u64, by: ProcessId) {
    let first = zero_tail(task, id, inode, size);
    if inode.flags.load(Relaxed) & inode_flags::MAPPED == 0 {
        linking::clear(task, id, inode, first, map::END);
    } else {
        cut_mapped(task, id, inode, first, by);
    }
}

/// Empties the pages from `first` on, which go with the last mapping. `by` looks at its own mappings itself;
/// those of others raise SIGBUS where a page has no memory ([`bare`]).
#[cold]
fn cut_mapped(task: &Task, id: InodeId, inode: &Inode, first: u64, by: ProcessId) {
    let region = task.region;
    // Relaxed, all: under the lock.
    let flags = inode.flags.load(Relaxed) | inode_flags::KEPT;
    inode.flags.store(flags, Relaxed);
    if flags & inode_flags::SPACE != 0 {
        each_page_run(task, inode, first, |run| owner::set_content(region, run));
    }
    let of = InodeRef { id, generation: inode.generation.load(Relaxed) };
    if !bare::is_possible(region) || mappers(task, of).all(|process| process == by) {
        return drop_pages(task, id, inode, first, map::END);
    }
    // Before the memory goes: who maps the pages from here on looks.
    inode.flags.store(flags | inode_flags::BARE, Relaxed);
    each_page_run(task, inode, first, |run| {
        if backing::discard(region, run.first, run.len as usize * PAGE_SIZE).is_err() {
            run.pages().for_each(|page| page::zero(region, page, 0, PAGE_SIZE));
        }
    });
}

/// Zeroes what lies beyond `size` in its page, unless that is borrowed: then it is zero. Returns the index of
/// the next page.
fn zero_tail(task: &Task, id: InodeId, inode: &Inode, size: u64) -> u64 {
    let tail = (size % PAGE_SIZE as u64) as usize;
    let first = size.div_ceil(PAGE_SIZE as u64);
    if tail != 0 {
        let last = map::get(task.region, inode, first - 1);
        // Relaxed: under the lock.
        let borrows = inode.flags.load(Relaxed) & inode_flags::BORROWS != 0;
        if last.is_some() && (!borrows || owner::is_of(task.region, last, id)) {
            page::zero(task.region, last, tail, PAGE_SIZE);
        }
    }
    first
}

/// Number of pages that [`cut_left`] will free. The caller must hold the lock, and nobody map the inode.
pub(crate) fn left(task: &Task, inode: &Inode, size: u64) -> u64 {
    let mut pages = 0;
    each_left(task, inode, size, |_, len| pages += len);
    pages
}

/// Removes what truncation has left beyond `size` while the inode was mapped, and leaves space that
/// fallocate(2) took there. The caller must hold the lock, be in a `data_seq` section and have subtracted
/// [`left`] from the inode's page count.
pub(crate) fn cut_left(task: &Task, id: InodeId, inode: &Inode, size: u64) {
    zero_tail(task, id, inode, size);
    each_left(task, inode, size, |index, len| linking::clear(task, id, inode, index, index + len));
}

/// Calls `visit` with the index and the number of consecutive pages beyond `size` that are more than space.
fn each_left(task: &Task, inode: &Inode, size: u64, mut visit: impl FnMut(u64, u64)) {
    let region = task.region;
    let has_space = inode.flags.load(Relaxed) & inode_flags::SPACE != 0;
    let mut index = size.div_ceil(PAGE_SIZE as u64);
    while let Some(piece) = map::next(task.region, inode, &mut index) {
        let is_space = |step: u64| has_space && owner::is_space(region, PageId(piece.page.0 + step as u32));
        let mut step = 0;
        while step < piece.len {
            let first = step;
            let kind = is_space(first);
            step = (first..piece.len).find(|step| is_space(*step) != kind).unwrap_or(piece.len);
            if !kind {
                visit(index + first, step - first);
            }
        }
        index += piece.len;
    }
}

/// Calls `visit` with the pages from `first` on.
fn each_page_run(task: &Task, inode: &Inode, first: u64, visit: impl Fn(PageRun)) {
    let mut index = first;
    while let Some(piece) = map::next(task.region, inode, &mut index) {
        visit(PageRun { first: piece.page, len: piece.len as u32 });
        index += piece.len;
    }
}

/// Makes the pages of `first..end` read as zeros: frees them or, while they may be mapped, zeroes them. The
/// caller must hold the lock, be in a `data_seq` section and have subtracted [`going`] from the inode's page
/// count.
pub(crate) fn drop_pages(task: &Task, id: InodeId, inode: &Inode, first: u64, end: u64) {
    if inode.flags.load(Relaxed) & inode_flags::MAPPED == 0 {
        return linking::clear(task, id, inode, first, end);
    }
    let mut index = first;
    while let Some(piece) = map::next(task.region, inode, &mut index).filter(|_| index < end) {
        let run = PageRun { first: piece.page, len: piece.len.min(end - index) as u32 };
        run.pages().for_each(|page| page::zero(task.region, page, 0, PAGE_SIZE));
        index += piece.len;
    }
}
