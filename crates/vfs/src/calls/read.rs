//! read(2), pread(2), readv(2), preadv(2), preadv2(2).
//!
//! A read is a snapshot ([`crate::content::snapshot`]), so it never sees half a write. It takes no lock, and
//! of shared data writes only the position.

use lp_abi::linux::{RWF_APPEND, RWF_HIPRI, iovec};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserSlice};
use lp_region::records::{Inode, OpenFile, file_mode};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{MountId, ucopy};

use crate::caller::below::{self, Need, Passage};
use crate::caller::task::Task;
use crate::calls::write::may_not_append;
use crate::content::buffer::{Buffer, Few, RWF_KNOWN, RWF_NOAPPEND, Single, Vector};
use crate::content::{map, page, snapshot};
use crate::descriptors::fget::HeldFile;
use crate::descriptors::position;
use crate::descriptors::table::entry;
use crate::inodes::{inode, watched};

/// What a file must be opened for to take a fast path.
const READABLE: u32 = file_mode::READ | file_mode::REGULAR;

/// Reads from the position and advances it.
///
/// # Errors
/// `EBADF` if the file is not open for reading; `EISDIR`; `EFAULT`.
#[inline]
pub fn read(task: &Task, fd: Fd, buf: UserSlice) -> Result<usize> {
    match read_quick::<false>(task, task.table.load(fd), buf, || None) {
        Some(got) => Ok(got),
        None => read_slow(task, fd, buf),
    }
}

/// Fast path of [`read`], for an entry just read: the position is this thread's alone, and the bytes are
/// within a page. Returns `None` to fall back to [`read`]. `WIDE` says that all vector registers are free in
/// full width; `otherwise` answers for a position that may be others' too.
#[inline(always)]
pub fn read_quick<const WIDE: bool>(
    task: &Task,
    entry: u64,
    buf: UserSlice,
    otherwise: impl FnOnce() -> Option<usize>,
) -> Option<usize> {
    let Some(file) = task.sole(entry, READABLE) else { return otherwise() };
    let at = file.position.load(Relaxed); // Relaxed: nobody else has it.
    let got = quick::<WIDE>(task, file, buf, at)?;
    file.position.store(at + got as u64, Relaxed);
    Some(got)
}

/// [`read_quick`] beside threads that share the table, or others that move the position.
#[inline(always)]
pub fn read_quick_beside<const WIDE: bool>(task: &Task, fd: Fd, buf: UserSlice) -> Option<usize> {
    let held = task.pin_for(fd, entry::DATA, READABLE)?;
    let position = position::hold_biased(task, held.file)?;
    let at = position.get();
    let got = quick::<WIDE>(task, held.file, buf, at)?;
    position.set(at + got as u64);
    Some(got)
}

#[inline(never)]
fn read_slow(task: &Task, fd: Fd, buf: UserSlice) -> Result<usize> {
    if let Some(got) = read_quick_beside::<false>(task, fd, buf) {
        return Ok(got);
    }
    let held = readable(task, fd).or_else(|errno| unreadable(errno, buf, 0))?;
    let to = Single::new(buf)?;
    let position = position::hold(task, &held);
    let at = position.get();
    let got = match quick::<false>(task, held.file, buf, at) {
        Some(got) => got,
        None => read_at(task, &held, to, to.len(), at)?,
    };
    position.set(at + got as u64);
    Ok(got)
}

/// Reads at an offset.
///
/// # Errors
/// Those of [`read`]; `EINVAL` for a negative offset.
#[inline]
pub fn pread(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> Result<usize> {
    match pread_quick::<false>(task, task.table.load(fd), buf, offset, || None) {
        Some(got) => Ok(got),
        None => pread_slow(task, fd, buf, offset),
    }
}

/// Fast path of [`pread`], for an entry just read: the bytes are within a page. Returns `None` to fall back
/// to [`pread`]. `WIDE` as in [`read_quick`]; `otherwise` answers while threads share the table.
#[inline(always)]
pub fn pread_quick<const WIDE: bool>(
    task: &Task,
    entry: u64,
    buf: UserSlice,
    offset: i64,
    otherwise: impl FnOnce() -> Option<usize>,
) -> Option<usize> {
    let Some(file) = task.own_opened_for(entry, READABLE) else { return otherwise() };
    if offset < 0 {
        return None;
    }
    quick::<WIDE>(task, file, buf, offset as u64)
}

/// [`pread_quick`] beside threads that share the table.
#[inline(always)]
pub fn pread_quick_beside<const WIDE: bool>(
    task: &Task,
    fd: Fd,
    buf: UserSlice,
    offset: i64,
) -> Option<usize> {
    if offset < 0 {
        return None;
    }
    let held = task.pin_for(fd, entry::DATA, READABLE)?;
    quick::<WIDE>(task, held.file, buf, offset as u64)
}

#[inline(never)]
fn pread_slow(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> Result<usize> {
    if let Some(got) = pread_quick_beside::<false>(task, fd, buf, offset) {
        return Ok(got);
    }
    if offset < 0 {
        return Err(Errno::EINVAL);
    }
    let held = readable(task, fd).or_else(|errno| unreadable(errno, buf, offset))?;
    let to = Single::new(buf)?;
    match quick::<false>(task, held.file, buf, offset as u64) {
        Some(got) => Ok(got),
        None => read_at(task, &held, to, to.len(), offset as u64),
    }
}

/// Reads from the position into several buffers.
///
/// # Errors
/// Those of [`read`]; `EINVAL` for a bad vector.
pub fn readv(task: &Task, fd: Fd, entries: UserSlice<iovec>) -> Result<usize> {
    if let Some(got) = readv_quick(task, fd, entries) {
        return Ok(got);
    }
    let (held, to) = match vector(task, fd, entries)? {
        Some(both) => both,
        None => return Ok(nothing_slow(task, fd)),
    };
    let position = position::hold(task, &held);
    let at = position.get();
    let got = read_vector(task, &held, to, at)?;
    position.set(at + got as u64);
    Ok(got)
}

/// [`read_at`] to a vector.
fn read_vector(task: &Task, held: &HeldFile, to: Vector, offset: u64) -> Result<usize> {
    let got = read_at(task, held, to, to.len(), offset)?;
    if got == 0 {
        watched::read_slow(task, held.inode);
    }
    Ok(got)
}

/// A read to an empty vector. A vector read of no bytes is an event for who watches the file, as in
/// vfs_readv; a read(2) is not.
#[cold]
fn nothing_slow(task: &Task, fd: Fd) -> usize {
    if let Ok(held) = task.fget(fd) {
        watched::read_slow(task, held.inode);
    }
    0
}

/// Fast path of [`readv`]: within a page, to few pieces, of a position that is this thread's alone.
#[inline(always)]
fn readv_quick(task: &Task, fd: Fd, entries: UserSlice<iovec>) -> Option<usize> {
    let file = task.sole(task.table.load(fd), READABLE)?;
    let mut to = Few::new();
    to.read(entries)?;
    let at = file.position.load(Relaxed); // Relaxed: nobody else has it.
    let got = quick_few(task, file, &to, at)?;
    file.position.store(at + got as u64, Relaxed);
    Some(got)
}

/// Fast path of [`preadv`]: within a page, to few pieces.
#[inline(always)]
fn preadv_quick(task: &Task, fd: Fd, entries: UserSlice<iovec>, offset: i64) -> Option<usize> {
    let file = task.own_opened_for(task.table.load(fd), READABLE)?;
    let mut to = Few::new();
    to.read(entries)?;
    quick_few(task, file, &to, offset as u64)
}

/// The file and the buffers of a vector read; `None` for empty buffers, with which even a directory can be
/// read (the kernel's vfs_readv).
fn vector<'r>(task: &Task<'r>, fd: Fd, entries: UserSlice<iovec>) -> Result<Option<(HeldFile<'r>, Vector)>> {
    let held = readable(task, fd);
    if let Err(errno) = held
        && errno != Errno::EISDIR
    {
        return Err(errno);
    }
    let to = Vector::new(entries)?;
    if to.is_empty() { Ok(None) } else { held.map(|held| Some((held, to))) }
}

/// Reads at an offset into several buffers.
///
/// # Errors
/// Those of [`pread`] and [`readv`].
pub(crate) fn preadv(task: &Task, fd: Fd, entries: UserSlice<iovec>, offset: i64) -> Result<usize> {
    if offset < 0 {
        return Err(Errno::EINVAL);
    }
    if let Some(got) = preadv_quick(task, fd, entries, offset) {
        return Ok(got);
    }
    let (held, to) = match vector(task, fd, entries)? {
        Some(both) => both,
        None => return Ok(nothing_slow(task, fd)),
    };
    read_vector(task, &held, to, offset as u64)
}

/// `preadv` with `RWF_*` flags; at the position if `offset` is -1.
///
/// # Errors
/// Those of `preadv`; `EOPNOTSUPP` for flags that tmpfs does not know.
pub fn preadv2(task: &Task, fd: Fd, entries: UserSlice<iovec>, offset: i64, flags: u32) -> Result<usize> {
    if flags != 0 {
        return flagged_slow(task, fd, entries, offset, flags);
    }
    match offset {
        -1 => readv(task, fd, entries),
        _ => preadv(task, fd, entries, offset),
    }
}

/// `preadv2` with flags. As in vfs_readv and do_iter_readv_writev, they are looked at last.
#[cold]
fn flagged_slow(task: &Task, fd: Fd, entries: UserSlice<iovec>, offset: i64, flags: u32) -> Result<usize> {
    let held = readable(task, fd);
    let is_dir = held.as_ref().is_err_and(|errno| *errno == Errno::EISDIR);
    if let (Err(errno), false) = (&held, is_dir) {
        return Err(*errno);
    }
    let to = Vector::new(entries)?;
    if to.is_empty() {
        return Ok(nothing_slow(task, fd));
    }
    let position = held.as_ref().ok().filter(|_| offset < 0).map(|held| position::hold(task, held));
    let at = position.as_ref().map_or(offset.max(0) as u64, |position| position.get());
    if (at as i64).checked_add(to.len() as i64).is_none() {
        return Err(Errno::EINVAL);
    }
    let known = if is_dir { RWF_HIPRI } else { RWF_KNOWN };
    if flags & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let held = held.as_ref().map_err(|errno| *errno)?;
    if flags & RWF_APPEND != 0 && flags & RWF_NOAPPEND != 0 {
        return Err(Errno::EINVAL);
    }
    may_not_append(held, flags)?;
    let got = read_vector(task, held, to, at)?;
    if let Some(position) = position {
        position.set(at + got as u64);
    }
    Ok(got)
}

/// The error for reading a directory: as in vfs_read, after those for the arguments.
#[cold]
fn unreadable<'r>(errno: Errno, buf: UserSlice, offset: i64) -> Result<HeldFile<'r>> {
    if errno == Errno::EISDIR {
        let to = Single::new(buf)?;
        offset.checked_add(to.len() as i64).ok_or(Errno::EINVAL)?;
    }
    Err(errno)
}

#[inline(always)]
fn readable<'r>(task: &Task<'r>, fd: Fd) -> Result<HeldFile<'r>> {
    let held = task.fget(fd)?;
    let wanted = file_mode::READ | file_mode::REGULAR;
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    if mode & wanted == wanted { Ok(held) } else { Err(not_readable(mode)) }
}

#[cold]
fn not_readable(mode: u32) -> Errno {
    match mode {
        mode if mode & file_mode::READ == 0 || mode & file_mode::PATH != 0 => Errno::EBADF,
        mode if mode & file_mode::DIR != 0 => Errno::EISDIR,
        _ => Errno::EINVAL,
    }
}

/// Fast path: a read within one resident page with no writer. `None` to fall back to [`read_at`].
#[inline(always)]
fn quick<const WIDE: bool>(task: &Task, file: &OpenFile, to: UserSlice, offset: u64) -> Option<usize> {
    let inode = task.inode_of(file);
    let before = inode.data_seq.read();
    let size = inode.size.load(Relaxed); // Relaxed: ordered and validated by `data_seq`.
    let (to, asked) = (to.start().as_ptr(), to.len());
    let end = (to as usize).wrapping_add(asked);
    let len = (asked as u64).min(size.saturating_sub(offset)) as usize;
    let within = offset as usize % PAGE_SIZE;
    // At least one byte, and within the page. The kernel's access_ok: neither the buffer nor its end is in
    // the kernel's half.
    if len.wrapping_sub(1) >= PAGE_SIZE - within || ((to as usize | asked | end) as isize) < 0 {
        return None;
    }
    let page = map::get_low(task, inode, offset / PAGE_SIZE as u64);
    if page.is_none() {
        return None;
    }
    // SAFETY: within the page; the copy routine handles faults in the program's buffer.
    let copied = unsafe { ucopy::copy_as::<WIDE>(to, task.page(page).add(within), len) };
    if copied.is_err() || inode.data_seq.retry(before) {
        return None;
    }
    inode::read_by(task, file, inode, len);
    Some(len)
}

/// [`quick`] to few pieces. Not one with it: every instruction of a read of one piece counts.
#[inline(always)]
fn quick_few(task: &Task, file: &OpenFile, to: &Few, offset: u64) -> Option<usize> {
    let inode = task.inode_of(file);
    let before = inode.data_seq.read();
    let size = inode.size.load(Relaxed); // Relaxed: ordered and validated by `data_seq`.
    let len = (to.len() as u64).min(size.saturating_sub(offset)) as usize;
    let within = offset as usize % PAGE_SIZE;
    if len == 0 || within + len > PAGE_SIZE {
        return None;
    }
    let page = map::get_low(task, inode, offset / PAGE_SIZE as u64);
    if page.is_none() {
        return None;
    }
    // SAFETY: within the page.
    let copied = unsafe { to.scatter(task.page(page).add(within), len) };
    if copied.is_err() || inode.data_seq.retry(before) {
        return None;
    }
    inode::read_by(task, file, inode, len);
    Some(len)
}

/// Reads up to `len` bytes at `offset` of an open file and records the access.
fn read_at<B: Buffer>(task: &Task, held: &HeldFile, to: B, len: usize, offset: u64) -> Result<usize> {
    inode::mend_if_left(task, held.inode_id(), &held.inode.data_seq);
    // The kernel's rw_verify_area: a sum that no `off_t` holds.
    if offset.saturating_add(len as u64) > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let got = match snapshot::snapshot(task.region, held.inode, to, len, offset) {
        Err(below::MISSING) => taken_slow(task, held, to, len, offset),
        got => got,
    };
    // The kernel's shmem_file_read_iter: also if the program's memory could not be written.
    inode::read_by(task, held.file, held.inode, got.unwrap_or(0));
    got
}

/// Reads from the layer below, or takes the bytes from there and then reads.
#[cold]
fn taken_slow<B: Buffer>(task: &Task, held: &HeldFile, to: B, len: usize, offset: u64) -> Result<usize> {
    let take = || {
        below::take(task, held.inode_id(), Need::Range(offset, len as u64))?;
        snapshot::snapshot_taken(task.region, held.inode, to, len, offset)
    };
    if page::is_scarce(task.region) {
        return unkept(task, held, to, len, offset)?.map_or_else(take, Ok);
    }
    if let Some(to) = to.whole()
        && let Some(got) = (task.sources.through)(task, held.inode_ref(), to, offset, Passage::First)?
    {
        return Ok(got);
    }
    match take() {
        Err(Errno::ENOSPC) => unkept(task, held, to, len, offset)?.map_or_else(take, Ok),
        got => got,
    }
}

/// Reads from the layer below what the region has no room for. `None` if it was taken meanwhile, or this
/// process may not read there.
fn unkept<B: Buffer>(task: &Task, held: &HeldFile, to: B, len: usize, offset: u64) -> Result<Option<usize>> {
    let (mut rest, mut done) = (to, 0);
    while done < len {
        let got = rest.here(len - done).and_then(|here| {
            (task.sources.through)(task, held.inode_ref(), here, offset + done as u64, Passage::Any)
        });
        match got {
            Ok(Some(got)) => {
                rest.advance(got);
                done += got;
            }
            Ok(None) if done == 0 => return Ok(None),
            Err(errno) if done == 0 => return Err(errno),
            _ => break,
        }
    }
    Ok(Some(done))
}

/// Records that the door has read a file for a call on it.
pub fn note(task: &Task, inode: &Inode, mount: MountId) {
    inode::accessed(task, inode, 0, || mount);
}
