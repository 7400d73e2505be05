//! Sizes: truncate(2), ftruncate(2), and what open with `O_TRUNC` does.
//!
//! Bytes behind the end of the content are zeros in every page there is, outside of a `data_seq` section; so growing a
//! file is one store, and shrinking zeroes the rest of its last page.

use lp_abi::linux::{S_IFDIR, S_IFMT, S_IFREG};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::InodeId;
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;

use crate::below;
use crate::inode::{self, Touch};
use crate::task::{Place, Task};
use crate::watch::{self, Touched};
use crate::{map, page, permission, target, writer};

/// Gives a regular file another size; its times change even if the size does not. The caller holds its lock and has checked that it may.
pub fn resize(task: &Task, id: InodeId, inode: &Inode, size: u64) {
    crate::write::drop_privileges(task, id, inode);
    let old = inode.size.load(Relaxed); // Relaxed: under the lock.
    if size == old {
        return inode::touch(task, inode, Touch::Modify);
    }
    // The section comes first: should this lane die inside it, what lies behind the new end is cut off by `mend`.
    inode.data_seq.begin();
    let gone = if size < old { behind(task, inode, size) } else { 0 };
    let now = task.now();
    inode.seq.begin();
    inode.size.store(size, Relaxed); // Relaxed: inside the section.
    inode::less_in_section(inode, gone);
    inode::touch_in_section(inode, Touch::Modify, now);
    inode.seq.end();
    if size < old {
        cut(task, id, inode, size);
    }
    inode.data_seq.end();
}

/// Pages that [`cut`] will give back.
pub fn behind(task: &Task, inode: &Inode, size: u64) -> u64 {
    going(task, inode, size.div_ceil(PAGE_SIZE as u64), map::END)
}

/// Pages that [`drop_pages`] will give back.
pub fn going(task: &Task, inode: &Inode, first: u64, end: u64) -> u64 {
    match inode.flags.load(Relaxed) & inode_flags::MAPPED {
        0 => map::held(task.region, inode, first, end),
        _ => 0,
    }
}

/// Takes away what lies behind `size`. The caller holds the lock, is inside a `data_seq` section and has taken
/// [`behind`] off the inode's count of pages.
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
/// The caller holds the lock, is inside a `data_seq` section and has taken [`going`] off the inode's count of pages.
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
    within_limit(task, inode, size)
}

/// Growing past `RLIMIT_FSIZE` is what fails, as in `inode_newsize_ok`.
pub fn within_limit(task: &Task, inode: &Inode, size: u64) -> Result<()> {
    // Relaxed: the caller holds the lock; the limit changes in its own process only.
    if size > inode.size.load(Relaxed) && size > task.process.fsize_limit.load(Relaxed) {
        return Err(Errno::EFBIG);
    }
    Ok(())
}

/// Sets the size of the file that a path names. A lone `dirfd` of `AT_FDCWD` is truncate(2).
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for a size below zero or what is not a regular file; `EISDIR`; `EACCES`; `EROFS`;
/// those of [`may_resize`].
pub fn truncate(task: &Task, dirfd: i32, path: *const u8, length: i64) -> Result<Place<()>> {
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    target::at(task, dirfd, path, 0, |id, inode| {
        match inode.mode.load(Relaxed) & S_IFMT {
            S_IFREG => {}
            S_IFDIR => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        if below::is_pending(inode) {
            permission::check(task, inode, permission::WRITE)?;
            below::complete(task, inode)?;
        }
        let writing = writer::begin(task, inode)?;
        permission::check(task, inode, permission::WRITE)?;
        let held = inode::lock(task, id);
        may_resize(task, inode, length as u64)?;
        resize(task, id, inode, length as u64);
        drop((held, writing));
        watch::touched(task, id, inode, Touched::Modified);
        Ok(())
    })
}

/// Sets the size of an open file.
///
/// # Errors
/// `EBADF`; `EINVAL` when it is not a regular file open for writing; those of [`may_resize`].
pub fn ftruncate(task: &Task, fd: i32, length: i64) -> Result<()> {
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    let held = target::open(task, fd)?;
    let wanted = file_mode::WRITE | file_mode::REGULAR;
    if held.file.mode.load(Relaxed) & wanted != wanted {
        return Err(Errno::EINVAL);
    }
    let inode = held.inode;
    let writing = writer::begin(task, inode)?;
    let locked = inode::lock(task, held.inode_id());
    // An append-only file is refused; an immutable one that was open before is not.
    if inode.flags.load(Relaxed) & inode_flags::APPEND != 0 {
        return Err(Errno::EPERM);
    }
    within_limit(task, inode, length as u64)?;
    resize(task, held.inode_id(), inode, length as u64);
    drop((locked, writing));
    watch::touched(task, held.inode_id(), inode, Touched::Modified);
    Ok(())
}

/// Empties a file that is being opened with `O_TRUNC`. Permission and a writer's mark are the caller's business.
pub fn to_zero(task: &Task, id: InodeId, inode: &Inode) {
    let _locked = inode::lock(task, id);
    resize(task, id, inode, 0);
}
