//! Removing content: what lies beyond an end, or a range.

use lp_abi::PAGE_SIZE;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef};

use crate::caller::task::Task;
use crate::content::run::PageRun;
use crate::content::{linking, map, page};

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
        inode.flags.store(flags & !inode_flags::MAPPED, Relaxed);
    }
    map::held(task.region, inode, first, end)
}

/// Whether any process maps the inode. The caller must hold its lock.
pub(crate) fn is_mapped(task: &Task, of: InodeRef) -> bool {
    task.region.mappings().any(|record| record.inode.load(Relaxed) == of.to_word())
}

/// Removes what lies beyond `size`. The caller must hold the lock, be in a `data_seq` section and have
/// subtracted [`behind`] from the inode's page count.
pub(crate) fn cut(task: &Task, id: InodeId, inode: &Inode, size: u64) {
    let tail = (size % PAGE_SIZE as u64) as usize;
    let first = size.div_ceil(PAGE_SIZE as u64);
    if tail != 0 {
        let last = map::get(task.region, inode, first - 1);
        if last.is_some() {
            page::zero(task.region, last, tail, PAGE_SIZE);
        }
    }
    drop_pages(task, id, inode, first, map::END);
}

/// Makes the pages of `first..end` read as zeros: frees them or, while they may be mapped, zeroes them. The
/// caller must hold the lock, be in a `data_seq` section and have subtracted [`going`] from the inode's page
/// count.
pub(crate) fn drop_pages(task: &Task, id: InodeId, inode: &Inode, first: u64, end: u64) {
    if inode.flags.load(Relaxed) & inode_flags::MAPPED == 0 {
        return linking::clear(task, id, inode, first, end);
    }
    let map = map::Map::of(inode);
    let end = end.min(map.span());
    let mut index = first;
    while index < end {
        let piece = map::piece(task.region, map, index, end - index);
        if piece.page.is_some() {
            let run = PageRun { first: piece.page, len: piece.len as u32 };
            run.pages().for_each(|page| page::zero(task.region, page, 0, PAGE_SIZE));
        }
        index += piece.len;
    }
}
