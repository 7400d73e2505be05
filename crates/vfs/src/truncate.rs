//! Sizes: truncate(2), ftruncate(2), and what open with `O_TRUNC` does.
//!
//! Bytes behind the end of the content are zeros in every page there is, outside of a `data_seq` section; so growing a
//! file is one store, and shrinking zeroes the rest of its last page.

use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::InodeId;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;

use crate::inode::{self, Touch};
use crate::task::Task;
use crate::{map, page};

/// Whether times change when the size does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// They always do: ftruncate(2), `O_TRUNC`.
    Always,
    /// Only with the size: truncate(2).
    WithSize,
}

/// Gives a regular file another size. The caller holds its lock and has checked that it may.
pub fn resize(task: &Task, id: InodeId, inode: &Inode, size: u64, times: Times) {
    crate::write::drop_privileges(task, inode);
    let old = inode.size.load(Relaxed); // Relaxed: under the lock.
    if size != old {
        set_size(inode, size);
        if size < old {
            inode.data_seq.begin();
            cut(task, id, inode, size);
            inode.data_seq.end();
        }
    } else if times == Times::WithSize {
        return;
    }
    inode::touch(task, inode, Touch::Modify);
}

/// Stores the size where readers of attributes and of data both see one state. The caller holds the lock.
fn set_size(inode: &Inode, size: u64) {
    inode.seq.begin();
    inode.size.store(size, Relaxed); // Relaxed: inside the section.
    inode.seq.end();
}

/// Takes away what lies behind `size`. The caller holds the lock and is inside a `data_seq` section.
pub fn cut(task: &Task, id: InodeId, inode: &Inode, size: u64) {
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

/// Makes the pages of `first..end` read as zeros: gives them back, or, while they may be mapped, zeroes them.
/// The caller holds the lock and is inside a `data_seq` section.
pub fn drop_pages(task: &Task, id: InodeId, inode: &Inode, first: u64, end: u64) {
    if inode.flags.load(Relaxed) & inode_flags::MAPPED == 0 {
        return map::clear(task, id, inode, first, end);
    }
    let map = map::Map::of(inode);
    let end = end.min(map.span());
    let mut index = first;
    while index < end {
        let piece = map::piece(task.region, map, index, end - index);
        if piece.page.is_some() {
            let run = page::Run { first: piece.page, len: piece.len as u32 };
            run.pages().for_each(|page| page::zero(task.region, page, 0, PAGE_SIZE));
        }
        index += piece.len;
    }
}

/// Checks a new size against what the file and the process allow.
///
/// # Errors
/// `EFBIG` past `RLIMIT_FSIZE`: the door also sends SIGXFSZ when that limit is set; `EPERM` for an append-only or
/// immutable file.
pub fn may_resize(task: &Task, inode: &Inode, size: u64) -> Result<()> {
    let fixed = inode_flags::APPEND | inode_flags::IMMUTABLE;
    if inode.flags.load(Relaxed) & fixed != 0 {
        return Err(Errno::EPERM);
    }
    // inode_newsize_ok: growing past the limit is what fails.
    if size > inode.size.load(Relaxed) && size > task.process.fsize_limit.load(Relaxed) {
        return Err(Errno::EFBIG);
    }
    Ok(())
}
