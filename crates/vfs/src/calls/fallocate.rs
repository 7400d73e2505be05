//! fallocate(2), with the modes that tmpfs supports.

use lp_abi::linux::{
    FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_UNSHARE_RANGE, FALLOC_FL_ZERO_RANGE,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result};
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef};

use crate::caller::event::Touched;
use crate::caller::task::Task;
use crate::calls::truncate;
use crate::content::linking::Purpose;
use crate::content::{allowance, bare, cut, linking, map, page};
use crate::inodes::inode::{self, Touch};
use crate::inodes::{reflink, watched};
use crate::lane::writer;
use crate::life::{mapped, reclaim};
use crate::rights::privileges;

/// Allocates space, or makes a hole, of `length` bytes at `offset`.
///
/// # Errors
/// `EBADF` if the file is not open for writing; `EINVAL` for an empty or negative range; `EOPNOTSUPP` for a
/// mode that tmpfs does not support; `EFBIG`; `ENOSPC`; `EISDIR`, `ENODEV` if it is not a regular file;
/// `EPERM` for an append-only or immutable one.
pub fn fallocate(task: &Task, fd: Fd, mode: u32, offset: i64, length: i64) -> Result<()> {
    let held = task.fget_no_path(fd)?;
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL);
    }
    known(mode)?;
    let opened = held.file.mode.load(Relaxed); // Relaxed: immutable.
    if opened & file_mode::WRITE == 0 {
        return Err(Errno::EBADF);
    }
    let (id, inode) = (held.inode_id(), held.inode);
    let flags = inode.flags.load(Relaxed);
    let keeps_bytes = mode & !FALLOC_FL_KEEP_SIZE == 0;
    if flags & inode_flags::IMMUTABLE != 0 || flags & inode_flags::APPEND != 0 && !keeps_bytes {
        return Err(Errno::EPERM);
    }
    if opened & file_mode::REGULAR == 0 {
        return Err(Errno::ENODEV);
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)? as u64;
    let what = kind(mode)?;
    let writing = writer::begin(task, held.mount())?;
    match what {
        Operation::Hole => punch(task, id, inode, offset as u64, end),
        Operation::Room(size) => {
            reclaim::once_more(task, || allocate(task, id, inode, offset as u64, end, size))
        }
    }?;
    drop(writing);
    watched::touched(task, id, inode, Touched::Modified);
    Ok(())
}

/// Makes a hole of whole pages in a file that this process maps shared with the right to write: madvise(2)
/// with `MADV_REMOVE`.
///
/// # Errors
/// `EPERM` for an append-only or immutable file; `EROFS`.
pub fn punch_mapped(task: &Task, of: InodeRef, offset: u64, length: u64) -> Result<()> {
    let inode = task.region.inode(of.id);
    let guarded = inode_flags::APPEND | inode_flags::IMMUTABLE;
    if inode.flags.load(Relaxed) & guarded != 0 {
        return Err(Errno::EPERM);
    }
    let writing = writer::begin(task, mapped::mount_of(task, of))?;
    punch(task, of.id, inode, offset, offset + length)?;
    drop(writing);
    watched::touched(task, of.id, inode, Touched::Modified);
    Ok(())
}

/// The operation that the mode selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Room(Size),
    Hole,
}

/// Whether space behind the end becomes part of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Grows,
    Stays,
}

/// The kernel's vfs_fallocate: checks, before the descriptor is checked, that some file system has this mode.
///
/// # Errors
/// `EOPNOTSUPP`.
fn known(mode: u32) -> Result<()> {
    /// `FALLOC_FL_WRITE_ZEROES`, which tmpfs does not have.
    const WRITE_ZEROES: u32 = 0x80;
    match mode & !FALLOC_FL_KEEP_SIZE {
        0 | FALLOC_FL_ZERO_RANGE | FALLOC_FL_UNSHARE_RANGE => Ok(()),
        WRITE_ZEROES if mode & FALLOC_FL_KEEP_SIZE == 0 => Ok(()),
        FALLOC_FL_PUNCH_HOLE if mode & FALLOC_FL_KEEP_SIZE != 0 => Ok(()),
        FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE if mode & FALLOC_FL_KEEP_SIZE == 0 => Ok(()),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn kind(mode: u32) -> Result<Operation> {
    match mode {
        0 => Ok(Operation::Room(Size::Grows)),
        FALLOC_FL_KEEP_SIZE => Ok(Operation::Room(Size::Stays)),
        // The kernel's vfs_fallocate: a hole must keep the size.
        _ if mode == FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE => Ok(Operation::Hole),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn punch(task: &Task, id: InodeId, inode: &Inode, offset: u64, end: u64) -> Result<()> {
    let _locked = inode::lock(task, id);
    // What lies between is not needed.
    reflink::before_write(task, id, inode, offset, 1)?;
    reflink::before_write(task, id, inode, end - 1, 1)?;
    privileges::drop_privileges(task, id, inode);
    let size = PAGE_SIZE as u64;
    let (first, last) = (offset.div_ceil(size), end / size);
    let now = task.now();
    inode.data_seq.begin();
    inode.seq.begin();
    linking::less_in_section(inode, cut::going(task, id, inode, first, last));
    inode::touch_in_section(inode, Touch::Modify, now);
    inode.seq.end();
    if first > last {
        // Within one page.
        zero(task, inode, offset / size, (offset % size) as usize, (end - offset) as usize);
    } else {
        if !offset.is_multiple_of(size) {
            zero(task, inode, first - 1, (offset % size) as usize, PAGE_SIZE);
        }
        if !end.is_multiple_of(size) {
            zero(task, inode, last, 0, (end % size) as usize);
        }
        cut::drop_pages(task, id, inode, first, last);
    }
    inode.data_seq.end();
    Ok(())
}

fn zero(task: &Task, inode: &Inode, index: u64, from: usize, len: usize) {
    let page = map::get(task.region, inode, index);
    if page.is_some() {
        page::zero(task.region, page, from, len);
    }
}

fn allocate(task: &Task, id: InodeId, inode: &Inode, offset: u64, end: u64, size: Size) -> Result<()> {
    let _locked = inode::lock(task, id);
    let old = inode.size.load(Relaxed); // Relaxed: under the lock.
    // The kernel's shmem_fallocate: even if the size stays.
    truncate::within_limit(task, inode, end)?;
    let (first, last) = (offset / PAGE_SIZE as u64, end.div_ceil(PAGE_SIZE as u64));
    // Refuse an impossible request before taking a page.
    let missing = last - first - map::held(task.region, inode, first, last);
    // Relaxed: immutable.
    let is_allowed = allowance::has_room(task, inode.root.load(Relaxed), allowance::What::Pages, missing);
    if missing > page::free_count(task.region) || !is_allowed {
        return Err(Errno::ENOSPC);
    }
    reflink::unshare(task, id, inode)?;
    privileges::drop_privileges(task, id, inode);
    inode.data_seq.begin();
    let mut made = 0;
    let filled = linking::fill(task, id, inode, (first, last), Purpose::Space, &mut made);
    if filled.is_err() && missing == last - first {
        // There were holes only: what it has taken goes back, as by the kernel's shmem_undo_range.
        let had_none = inode.pages.load(Relaxed) == 0; // Relaxed: under the lock.
        let (from, to) = if had_none { (0, map::END) } else { (first, last) };
        linking::clear(task, id, inode, from, to);
        made = 0;
    }
    inode.flags.store(inode.flags.load(Relaxed) | inode_flags::SPACE, Relaxed); // Relaxed: under the lock.
    let now = task.now();
    inode.seq.begin();
    linking::more_in_section(inode, made);
    if filled.is_ok() {
        if size == Size::Grows && end > old {
            inode.size.store(end, Relaxed); // Relaxed: inside the sections.
        }
        inode::touch_in_section(inode, Touch::Modify, now);
    }
    inode.seq.end();
    inode.data_seq.end();
    if size == Size::Grows {
        bare::grown(task, inode, old, end);
    }
    filled
}
