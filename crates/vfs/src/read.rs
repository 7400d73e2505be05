//! read(2), pread(2), readv(2), preadv(2), preadv2(2).
//!
//! A read is a snapshot: bytes and size are copied under `data_seq` and validated, so it never sees half a write. It
//! takes no lock and writes nothing that is shared but the position. While a change that does not end (its writer is
//! stopped, or writes a gigabyte) keeps the count odd, a reader takes what is there, as Linux would give it: each page
//! as it was at some moment while the map named it.

use lp_abi::linux::{O_NOATIME, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_SYNC, iovec};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::records::{Inode, OpenFile, file_mode};
use lp_region::sync::Ordering::Relaxed;
use lp_region::sync::{acquire_fence, pause, spin};
use lp_region::{PageId, Region, ucopy};

use crate::below;
use crate::buffer::{self, Buffer, RWF_NOAPPEND, Single, Vector};
use crate::bulk::Way;
use crate::map::{self, Map};
use crate::table::{self, Held};
use crate::task::Task;
use crate::{file, inode};

/// Looks at a count that stays odd before a reader goes to sleep between them.
const SPINS: u32 = 2000;
/// Sleeps, of 50 us and more each, before it takes the change under way for stopped.
const PAUSES: u32 = 100;
/// Snapshots tried before a reader settles for page by page.
const TRIES: u32 = 64;

/// Reads from the position on and moves it.
///
/// # Errors
/// `EBADF` when the file is not open for reading; `EISDIR`; `EFAULT`.
#[inline]
pub fn read(task: &Task, fd: i32, buf: *mut u8, len: usize) -> Result<usize> {
    match read_quick::<false>(task, table::load(task, fd), buf, len) {
        Some(got) => Ok(got),
        None => read_slow(task, fd, buf, len),
    }
}

/// The common [`read`], of an entry just read: of a position that is this thread's alone, within a page. None asks for [`read`].
/// `WIDE` says that all vector registers are free, whole.
#[inline(always)]
pub fn read_quick<const WIDE: bool>(task: &Task, entry: u64, buf: *mut u8, len: usize) -> Option<usize> {
    let file = table::sole(task, entry, file_mode::READ | file_mode::REGULAR)?;
    let at = file.position.load(Relaxed); // Relaxed: nobody else has it.
    let got = quick::<WIDE>(task, file, buf, len, at)?;
    file.position.store(at + got as u64, Relaxed);
    Some(got)
}

#[inline(never)]
fn read_slow(task: &Task, fd: i32, buf: *mut u8, len: usize) -> Result<usize> {
    let held = readable(task, fd)?;
    let to = Single::new(buf, len)?;
    let position = file::position(task, &held);
    let at = position.get();
    let got = match quick::<false>(task, held.file, buf, len, at) {
        Some(got) => got,
        None => read_at(task, &held, to, to.len(), at)?,
    };
    position.set(at + got as u64);
    Ok(got)
}

/// Reads at an offset.
///
/// # Errors
/// As [`read`]; `EINVAL` for an offset below zero.
#[inline]
pub fn pread(task: &Task, fd: i32, buf: *mut u8, len: usize, offset: i64) -> Result<usize> {
    match pread_quick::<false>(task, table::load(task, fd), buf, len, offset) {
        Some(got) => Ok(got),
        None => pread_slow(task, fd, buf, len, offset),
    }
}

/// The common [`pread`], of an entry just read: within a page. None asks for [`pread`]. `WIDE` as for [`read_quick`].
#[inline(always)]
pub fn pread_quick<const WIDE: bool>(
    task: &Task,
    entry: u64,
    buf: *mut u8,
    len: usize,
    offset: i64,
) -> Option<usize> {
    let file = table::own_file(task, entry)?;
    let wanted = file_mode::READ | file_mode::REGULAR;
    // Relaxed: immutable.
    if file.mode.load(Relaxed) & wanted != wanted || offset < 0 {
        return None;
    }
    quick::<WIDE>(task, file, buf, len, offset as u64)
}

#[inline(never)]
fn pread_slow(task: &Task, fd: i32, buf: *mut u8, len: usize, offset: i64) -> Result<usize> {
    if offset < 0 {
        return Err(Errno::EINVAL);
    }
    let held = readable(task, fd)?;
    let to = Single::new(buf, len)?;
    match quick::<false>(task, held.file, buf, len, offset as u64) {
        Some(got) => Ok(got),
        None => read_at(task, &held, to, to.len(), offset as u64),
    }
}

/// Reads from the position on into several buffers.
///
/// # Errors
/// As [`read`]; `EINVAL` for a bad vector.
pub fn readv(task: &Task, fd: i32, entries: *const iovec, count: usize) -> Result<usize> {
    let (held, to) = match vector(task, fd, entries, count)? {
        Some(both) => both,
        None => return Ok(0),
    };
    let position = file::position(task, &held);
    let at = position.get();
    let got = read_at(task, &held, to, to.len(), at)?;
    position.set(at + got as u64);
    Ok(got)
}

/// The file and the buffers of a vector read; none for buffers of no bytes, which even a directory gives (vfs_readv).
fn vector<'r>(
    task: &Task<'r>,
    fd: i32,
    entries: *const iovec,
    count: usize,
) -> Result<Option<(Held<'r>, Vector)>> {
    let held = readable(task, fd);
    if let Err(errno) = held
        && errno != Errno::EISDIR
    {
        return Err(errno);
    }
    let to = Vector::new(entries, count)?;
    if to.is_empty() { Ok(None) } else { held.map(|held| Some((held, to))) }
}

/// Reads at an offset into several buffers.
///
/// # Errors
/// As [`pread`] and [`readv`].
pub fn preadv(task: &Task, fd: i32, entries: *const iovec, count: usize, offset: i64) -> Result<usize> {
    if offset < 0 {
        return Err(Errno::EINVAL);
    }
    let (held, to) = match vector(task, fd, entries, count)? {
        Some(both) => both,
        None => return Ok(0),
    };
    read_at(task, &held, to, to.len(), offset as u64)
}

/// [`preadv`] with `RWF_*` flags; at the position if `offset` is -1.
///
/// # Errors
/// As [`preadv`]; `EOPNOTSUPP` for flags that tmpfs does not know.
pub fn preadv2(
    task: &Task,
    fd: i32,
    entries: *const iovec,
    count: usize,
    offset: i64,
    flags: u32,
) -> Result<usize> {
    let known = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND | RWF_NOAPPEND;
    if flags & !known != 0 {
        readable(task, fd)?;
        return Err(Errno::EOPNOTSUPP);
    }
    match offset {
        -1 => readv(task, fd, entries, count),
        _ => preadv(task, fd, entries, count, offset),
    }
}

#[inline(always)]
fn readable<'r>(task: &Task<'r>, fd: i32) -> Result<Held<'r>> {
    let held = table::fget(task, fd)?;
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

/// The read that is most of all: bytes of one page that is there, and nobody writes. None asks for [`read_at`].
#[inline(always)]
fn quick<const WIDE: bool>(
    task: &Task,
    file: &OpenFile,
    to: *mut u8,
    len: usize,
    offset: u64,
) -> Option<usize> {
    let inode = table::inode_of(task, file);
    let before = inode.data_seq.read();
    let size = inode.size.load(Relaxed); // Relaxed: ordered and validated by `data_seq`.
    let end = (to as usize).wrapping_add(len);
    let len = (len as u64).min(size.saturating_sub(offset)) as usize;
    let within = offset as usize % PAGE_SIZE;
    // access_ok: neither the buffer nor its end is in the kernel's half.
    if len == 0 || within + len > PAGE_SIZE || ((to as usize | end) as isize) < 0 || end < to as usize {
        return None;
    }
    let page = map::get_low(task.region, inode, offset / PAGE_SIZE as u64);
    if page.is_none() {
        return None;
    }
    // SAFETY: within the page; the buffer is the program's.
    let copied = unsafe { ucopy::copy_as::<WIDE>(to, task.region.page(page).add(within), len) };
    if copied.is_err() || inode.data_seq.retry(before) {
        return None;
    }
    note(task, file, inode, len);
    Some(len)
}

/// Reads up to `len` bytes at `offset` of an open file and notes the access.
fn read_at<B: Buffer>(task: &Task, held: &Held, to: B, len: usize, offset: u64) -> Result<usize> {
    inode::mend_if_left(task, held.inode_id(), &held.inode.data_seq);
    // rw_verify_area: a sum that no `off_t` holds.
    if offset.saturating_add(len as u64) > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let got = match snapshot(task.region, held.inode, to, len, offset) {
        Err(below::MISSING) => taken_slow(task, held, to, len, offset)?,
        got => got?,
    };
    note(task, held.file, held.inode, got);
    Ok(got)
}

/// Reads what is taken from the layer below first.
#[cold]
fn taken_slow<B: Buffer>(task: &Task, held: &Held, to: B, len: usize, offset: u64) -> Result<usize> {
    below::content::range(task, held.inode_id(), offset, len as u64)?;
    snapshot(task.region, held.inode, to, len, offset)
}

/// Notes the access to some bytes.
#[inline(always)]
fn note(task: &Task, file: &OpenFile, inode: &Inode, bytes: usize) {
    // Relaxed: one word.
    if file.flags.load(Relaxed) & O_NOATIME == 0 {
        inode::accessed(task, inode, bytes);
    }
}

/// Copies content under `data_seq`; `EFAULT` when not one byte could be copied.
pub fn snapshot<B: Buffer>(region: Region, inode: &Inode, to: B, len: usize, offset: u64) -> Result<usize> {
    let before = inode.data_seq.read();
    let got = copy(region, inode, to, len, offset);
    if !inode.data_seq.retry(before) {
        return got;
    }
    snapshot_slow(region, inode, to, len, offset)
}

#[cold]
fn snapshot_slow<B: Buffer>(region: Region, inode: &Inode, to: B, len: usize, offset: u64) -> Result<usize> {
    let (mut stuck, mut tries) = (0, 0);
    let mut last = inode.data_seq.read();
    while tries < TRIES {
        let before = inode.data_seq.read();
        stuck = if before == last && before & 1 != 0 { stuck + 1 } else { 0 };
        last = before;
        // A copy while a change is under way is worth nothing unless that change has stopped.
        if before & 1 != 0 && stuck < SPINS {
            spin();
            continue;
        }
        if before & 1 != 0 && stuck < SPINS + PAUSES {
            pause();
            continue;
        }
        // Its writer has stopped, or is at something long: a truncation may be giving pages back under this very count.
        if before & 1 != 0 {
            break;
        }
        let got = copy(region, inode, to, len, offset);
        if !inode.data_seq.retry(before) {
            return got;
        }
        tries += 1;
    }
    page_by_page(region, inode, to, len, offset)
}

/// What Linux gives a reader beside a writer that never rests, or does not finish: each page as it was at some moment. A page counts only if
/// the map still names it after the copy.
fn page_by_page<B: Buffer>(region: Region, inode: &Inode, to: B, len: usize, offset: u64) -> Result<usize> {
    let (mut to, mut done) = (to, 0);
    while done < len {
        let at = offset + done as u64;
        let bytes = (PAGE_SIZE - at as usize % PAGE_SIZE).min(len - done);
        let index = at / PAGE_SIZE as u64;
        let got = loop {
            let page = map::get(region, inode, index);
            let got = copy(region, inode, to, bytes, at);
            acquire_fence();
            if map::get(region, inode, index) == page {
                break got;
            }
        };
        let got = match got {
            Err(_) if done > 0 => break,
            got => got?,
        };
        to.skip(got)?;
        done += got;
        if got < bytes {
            break;
        }
    }
    Ok(done)
}

fn copy<B: Buffer>(region: Region, inode: &Inode, mut to: B, len: usize, offset: u64) -> Result<usize> {
    let size = inode.size.load(Relaxed); // Relaxed: ordered and validated by `data_seq`.
    if offset >= size {
        return Ok(0);
    }
    let len = len.min((size - offset).min(usize::MAX as u64) as usize);
    let within = offset as usize % PAGE_SIZE;
    if within + len > PAGE_SIZE {
        return copy_pages(region, inode, to, len, offset);
    }
    let page = map::get(region, inode, offset / PAGE_SIZE as u64);
    let got = if page.is_some() {
        // SAFETY: within the page.
        unsafe { buffer::copy(Way::Out, region.page(page).add(within), &mut to, len, (-1, 0)) }
    } else {
        hole(inode, &mut to, len)?
    };
    if got == 0 && len != 0 { Err(Errno::EFAULT) } else { Ok(got) }
}

/// Gives the zeros of a hole; [`below::MISSING`] if it is none, but content that is still to be taken.
fn hole<B: Buffer>(inode: &Inode, to: &mut B, len: usize) -> Result<usize> {
    if below::is_pending(inode) { Err(below::MISSING) } else { Ok(buffer::zero_out(to, len)) }
}

/// Copies what spans pages, neighbouring ones at once.
#[inline(never)]
fn copy_pages<B: Buffer>(region: Region, inode: &Inode, mut to: B, len: usize, offset: u64) -> Result<usize> {
    let map = Map::of(inode);
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let within = at as usize % PAGE_SIZE;
        let pages = (within + len - done).div_ceil(PAGE_SIZE) as u64;
        let piece = map::piece(region, map, at / PAGE_SIZE as u64, pages);
        let bytes = (piece.len as usize * PAGE_SIZE - within).min(len - done);
        let got = match span(region, piece.page, piece.len) {
            Some(base) => {
                // SAFETY: `span` checked that the pages are in the region.
                let from = unsafe { region.base().add(base + within) };
                // SAFETY: as above.
                unsafe { buffer::copy(Way::Out, from, &mut to, bytes, (region.fd(), base + within)) }
            }
            None => hole(inode, &mut to, bytes)?,
        };
        done += got;
        if got < bytes {
            break;
        }
    }
    if done == 0 && len != 0 { Err(Errno::EFAULT) } else { Ok(done) }
}

/// Offset of a run of pages in the region; none for a hole, and for what only a damaged region names.
pub fn span(region: Region, first: PageId, len: u64) -> Option<usize> {
    let last = PageId(first.0.checked_add(len as u32 - 1)?);
    region.page_offset(last).filter(|_| first.is_some())?;
    region.page_offset(first)
}
