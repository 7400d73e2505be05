//! write(2), pwrite(2), writev(2), pwritev(2), pwritev2(2).
//!
//! A write takes its inode's lock, through the bias if this lane is the only writer. Bytes, map and size
//! change in one `data_seq` section, so readers see all of it or nothing.

use lp_abi::linux::{O_APPEND, RWF_APPEND, S_ISGID, S_ISUID, iovec};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserSlice};
use lp_region::bias::Hold;
use lp_region::order::{self, Rank};
use lp_region::records::{Inode, OpenFile, file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{PageId, ucopy};

use crate::caller::task::Task;
use crate::content::buffer::{Few, RWF_KNOWN, RWF_NOAPPEND, Single, Vector};
use crate::content::bulk;
use crate::content::fill::copy_pages;
use crate::content::source::Source;
use crate::content::{linking, map, owner};
use crate::descriptors::fget::HeldFile;
use crate::descriptors::position;
use crate::descriptors::table::entry;
use crate::inodes::inode::{self, Touch};
use crate::inodes::{borrow, reflink, watched};
use crate::lane::writer;
use crate::life::reclaim;
use crate::rights::privileges;

/// Largest offset after the last byte of a file (`MAX_LFS_FILESIZE`).
const MAX_SIZE: u64 = i64::MAX as u64;

/// What a file must be opened for.
const WRITABLE: u32 = file_mode::WRITE | file_mode::REGULAR;

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// To this offset.
    At(u64),
    /// To the end.
    End,
    /// To the end, if that is still at this offset.
    StillEnd(u64),
}

/// Writes at the position and advances it, or at the end with `O_APPEND`.
///
/// # Errors
/// `EBADF` if the file is not open for writing; `EFBIG` beyond `RLIMIT_FSIZE`, for which the door also sends
/// SIGXFSZ, or beyond the largest file; `ENOSPC`; `EFAULT`.
#[inline]
pub fn write(task: &Task, fd: Fd, buf: UserSlice) -> Result<usize> {
    match write_quick::<false>(task, task.table.load(fd), buf, || None) {
        Some(done) => Ok(done),
        None => write_whole(task, fd, buf),
    }
}

/// Fast path of [`write()`], for an entry just read: the position is this thread's alone, and the bytes go to
/// one page. Returns `None` to fall back to [`write()`]. `WIDE` says that all vector registers are free in
/// full width; `otherwise` answers for a position that may be others' too.
#[inline(always)]
pub fn write_quick<const WIDE: bool>(
    task: &Task,
    entry: u64,
    buf: UserSlice,
    otherwise: impl FnOnce() -> Option<usize>,
) -> Option<usize> {
    let Some(file) = task.sole(entry, WRITABLE) else { return otherwise() };
    // Relaxed: nobody else has the position; the flags are one word.
    let position = file.position.load(Relaxed);
    let to_end = file.flags.load(Relaxed) & O_APPEND != 0;
    let end = quick::<WIDE>(task, file, task.inode_of(file), buf, position, to_end)?;
    file.position.store(end, Relaxed);
    Some(buf.len())
}

/// [`write_quick`] beside threads that share the table, or others that move the position.
#[inline(always)]
pub fn write_quick_beside<const WIDE: bool>(task: &Task, fd: Fd, buf: UserSlice) -> Option<usize> {
    let held = task.pin_for(fd, entry::DATA, WRITABLE)?;
    let file = held.file;
    let position = position::hold_biased(task, file)?;
    let to_end = file.flags.load(Relaxed) & O_APPEND != 0; // Relaxed: one word.
    let end = quick::<WIDE>(task, file, task.inode_of(file), buf, position.get(), to_end)?;
    position.set(end);
    Some(buf.len())
}

#[inline(never)]
fn write_whole(task: &Task, fd: Fd, buf: UserSlice) -> Result<usize> {
    if let Some(done) = write_quick_beside::<false>(task, fd, buf) {
        return Ok(done);
    }
    let held = writable(task, fd)?;
    let from = Single::new(buf)?;
    at_position(task, &held, from, from.len(), Append::AsOpened)
}

/// Writes at an offset; at the end with `O_APPEND`, as Linux does (pwrite(2), BUGS).
///
/// # Errors
/// Those of [`write()`]; `EINVAL` for a negative offset.
#[inline]
pub fn pwrite(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> Result<usize> {
    match pwrite_quick::<false>(task, task.table.load(fd), buf, offset, || None) {
        Some(done) => Ok(done),
        None => pwrite_whole(task, fd, buf, offset),
    }
}

/// Fast path of [`pwrite`], for an entry just read: the bytes go to one page. Returns `None` to fall back to
/// [`pwrite`]. `WIDE` as in [`write_quick`]; `otherwise` answers while threads share the table.
#[inline(always)]
pub fn pwrite_quick<const WIDE: bool>(
    task: &Task,
    entry: u64,
    buf: UserSlice,
    offset: i64,
    otherwise: impl FnOnce() -> Option<usize>,
) -> Option<usize> {
    let Some(file) = task.own_opened_for(entry, WRITABLE) else { return otherwise() };
    pwrite_opened::<WIDE>(task, file, buf, offset)
}

/// [`pwrite_quick`] beside threads that share the table.
#[inline(always)]
pub fn pwrite_quick_beside<const WIDE: bool>(
    task: &Task,
    fd: Fd,
    buf: UserSlice,
    offset: i64,
) -> Option<usize> {
    let held = task.pin_for(fd, entry::DATA, WRITABLE)?;
    pwrite_opened::<WIDE>(task, held.file, buf, offset)
}

#[inline(always)]
fn pwrite_opened<const WIDE: bool>(
    task: &Task,
    file: &OpenFile,
    buf: UserSlice,
    offset: i64,
) -> Option<usize> {
    if offset < 0 {
        return None;
    }
    // Relaxed: the flags are one word.
    let to_end = file.flags.load(Relaxed) & O_APPEND != 0;
    quick::<WIDE>(task, file, task.inode_of(file), buf, offset as u64, to_end).map(|_| buf.len())
}

#[inline(never)]
fn pwrite_whole(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> Result<usize> {
    if let Some(done) = pwrite_quick_beside::<false>(task, fd, buf, offset) {
        return Ok(done);
    }
    if offset < 0 {
        return Err(Errno::EINVAL);
    }
    let held = writable(task, fd)?;
    let from = Single::new(buf)?;
    verify(offset as u64, from.len())?;
    let target = target(&held, offset as u64, Append::AsOpened);
    write_at(task, &held, from, from.len(), target).map(|done| done.bytes)
}

/// The kernel's rw_verify_area: a sum that no `off_t` holds.
#[inline(always)]
fn verify(offset: u64, len: usize) -> Result<()> {
    if offset.wrapping_add(len as u64) > i64::MAX as u64 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Writes several buffers at the position.
///
/// # Errors
/// Those of `write`; `EINVAL` for a bad vector.
pub fn writev(task: &Task, fd: Fd, entries: UserSlice<iovec>) -> Result<usize> {
    if let Some(done) = writev_quick(task, fd, entries) {
        return Ok(done);
    }
    let held = writable(task, fd)?;
    let from = Vector::new(entries)?;
    at_position(task, &held, from, from.len(), Append::AsOpened)
}

/// Fast path of [`writev`]: few pieces into one page, at a position that is this thread's alone.
#[inline(always)]
fn writev_quick(task: &Task, fd: Fd, entries: UserSlice<iovec>) -> Option<usize> {
    let file = task.sole(task.table.load(fd), WRITABLE)?;
    let mut from = Few::new();
    from.read(entries)?;
    // Relaxed: nobody else has the position; the flags are one word.
    let position = file.position.load(Relaxed);
    let to_end = file.flags.load(Relaxed) & O_APPEND != 0;
    let end = quick_few(task, file, &from, position, to_end)?;
    file.position.store(end, Relaxed);
    Some(from.len())
}

/// Fast path of [`pwritev2`] without flags: few pieces into one page.
#[inline(always)]
fn pwritev_quick(task: &Task, fd: Fd, entries: UserSlice<iovec>, offset: i64) -> Option<usize> {
    let file = task.own_opened_for(task.table.load(fd), WRITABLE)?;
    if offset < 0 {
        return None;
    }
    // Relaxed: the flags are one word.
    let to_end = file.flags.load(Relaxed) & O_APPEND != 0;
    let mut from = Few::new();
    from.read(entries)?;
    quick_few(task, file, &from, offset as u64, to_end).map(|_| from.len())
}

/// Writes several buffers at an offset, or at the position if it is -1, with `RWF_*` flags.
///
/// # Errors
/// Those of [`pwrite`] and [`writev`]; `EOPNOTSUPP` for flags that tmpfs does not know; `EINVAL` for flags
/// that contradict each other.
pub fn pwritev2(task: &Task, fd: Fd, entries: UserSlice<iovec>, offset: i64, flags: u32) -> Result<usize> {
    if offset < -1 {
        return Err(Errno::EINVAL);
    }
    if flags == 0
        && let Some(done) = pwritev_quick(task, fd, entries, offset)
    {
        return Ok(done);
    }
    let held = writable(task, fd)?;
    let from = Vector::new(entries)?;
    if from.is_empty() {
        return Ok(0);
    }
    verify(offset.max(0) as u64, from.len())?;
    if flags != 0 && offset == -1 {
        // The flags are looked at last.
        verify(position::hold(task, &held).get(), from.len())?;
    }
    let append = if flags == 0 { Append::AsOpened } else { Append::of(flags)? };
    may_not_append(&held, flags)?;
    if offset == -1 {
        return at_position(task, &held, from, from.len(), append);
    }
    let target = target(&held, offset as u64, append);
    write_at(task, &held, from, from.len(), target).map(|done| done.bytes)
}

/// Checks `RWF_NOAPPEND`: the kernel's kiocb_set_rw_flags.
///
/// # Errors
/// `EPERM` if the file, which is open for appending, may be appended to only.
pub(crate) fn may_not_append(held: &HeldFile, flags: u32) -> Result<()> {
    let is_append_only = held.inode.flags.load(Relaxed) & inode_flags::APPEND != 0; // Relaxed: one word.
    let appends = held.file.flags.load(Relaxed) & O_APPEND != 0; // Relaxed: one word.
    match flags & RWF_NOAPPEND != 0 && appends && is_append_only {
        true => Err(Errno::EPERM),
        false => Ok(()),
    }
}

/// Whether a write goes to the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Append {
    AsOpened,
    Always,
    Never,
}

impl Append {
    /// Decodes `RWF_*` flags.
    #[cold]
    fn of(flags: u32) -> Result<Append> {
        if flags & !RWF_KNOWN != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        match flags & (RWF_APPEND | RWF_NOAPPEND) {
            0 => Ok(Append::AsOpened),
            RWF_APPEND => Ok(Append::Always),
            RWF_NOAPPEND => Ok(Append::Never),
            _ => Err(Errno::EINVAL),
        }
    }
}

#[inline(always)]
fn target(held: &HeldFile, offset: u64, append: Append) -> Target {
    let to_end = match append {
        Append::AsOpened => held.file.flags.load(Relaxed) & O_APPEND != 0, // Relaxed: one word.
        Append::Always => true,
        Append::Never => false,
    };
    if to_end { Target::End } else { Target::At(offset) }
}

#[inline(always)]
fn writable<'r>(task: &Task<'r>, fd: Fd) -> Result<HeldFile<'r>> {
    let held = task.fget(fd)?;
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    if mode & WRITABLE == WRITABLE { Ok(held) } else { Err(not_writable(mode)) }
}

#[cold]
fn not_writable(mode: u32) -> Errno {
    if mode & file_mode::WRITE == 0 || mode & file_mode::PATH != 0 { Errno::EBADF } else { Errno::EINVAL }
}

#[inline(always)]
fn at_position<S: Source>(
    task: &Task,
    held: &HeldFile,
    from: S,
    len: usize,
    append: Append,
) -> Result<usize> {
    let position = position::hold(task, held);
    verify(position.get(), len)?;
    let done = write_at(task, held, from, len, target(held, position.get(), append))?;
    // The kernel's generic_write_checks: an empty write does not first move to the end.
    if done.bytes != 0 {
        position.set(done.end);
    }
    Ok(done.bytes)
}

/// Writes bytes of a source at an offset, whatever the file's flags, for copies, sendfile and splice.
///
/// # Errors
/// Those of [`write()`]; `EFAULT` if the source has no byte.
pub(crate) fn store(
    task: &Task,
    held: &HeldFile,
    from: impl Source,
    len: usize,
    offset: u64,
) -> Result<usize> {
    write_at(task, held, from, len, Target::At(offset)).map(|done| done.bytes)
}

/// The result of a write.
#[derive(Clone, Copy)]
struct Done {
    bytes: usize,
    /// Offset after the last byte written.
    end: u64,
    /// Whether it stopped for lack of pages.
    full: bool,
}

fn write_at<S: Source>(task: &Task, held: &HeldFile, from: S, len: usize, target: Target) -> Result<Done> {
    if let Some(whole) = from.whole() {
        let (offset, to_end) = match target {
            Target::At(offset) => (offset, false),
            Target::End | Target::StillEnd(_) => (0, true),
        };
        if let Some(end) = quick::<false>(task, held.file, held.inode, whole, offset, to_end) {
            return Ok(Done { bytes: len, end, full: false });
        }
    }
    write_slow(task, held, from, len, target)
}

/// Fast path: a write into one resident page, by the only writer, of a file without privileges. Returns the
/// offset after it, or `None` to fall back to [`write_slow`], which starts over.
#[inline(always)]
fn quick<const WIDE: bool>(
    task: &Task,
    file: &OpenFile,
    inode: &Inode,
    from: UserSlice,
    offset: u64,
    to_end: bool,
) -> Option<u64> {
    let len = from.len();
    let start = from.start().addr();
    let buffer_end = start.wrapping_add(len);
    // The kernel's access_ok: neither the buffer nor its end is in the kernel's half.
    if ((start | buffer_end) as isize) < 0 || len == 0 || len > PAGE_SIZE {
        return None;
    }
    // SAFETY: `quick_filled` gives room for `len` bytes; the buffer is the program's.
    let fill = |to: *mut u8| unsafe { ucopy::copy_as::<WIDE>(to, from.start().as_ptr(), len) };
    quick_filled(task, file, inode, len, offset, to_end, fill)
}

/// [`quick`] from few pieces.
#[inline(always)]
fn quick_few(task: &Task, file: &OpenFile, from: &Few, offset: u64, to_end: bool) -> Option<u64> {
    // SAFETY: `quick_filled` gives room for all of them.
    let fill = |to: *mut u8| unsafe { from.gather(to) };
    quick_filled(task, file, task.inode_of(file), from.len(), offset, to_end, fill)
}

/// [`quick`] of 1 to `PAGE_SIZE` bytes that `fill` copies to where it is told.
#[inline(always)]
fn quick_filled(
    task: &Task,
    file: &OpenFile,
    inode: &Inode,
    len: usize,
    offset: u64,
    to_end: bool,
    fill: impl FnOnce(*mut u8) -> Result<()>,
) -> Option<u64> {
    if !writer::begin_alone(task, file) {
        return None;
    }
    let mut end = None;
    if inode.lock.enter_biased(task.lane_id, &task.lane.holding) {
        order::took(order::of(&task.lane.holding), order::what(Rank::Inode, inode));
        // Relaxed: under the lock.
        let offset = if to_end { inode.size.load(Relaxed) } else { offset };
        end = quick_locked(task, inode, len, offset, fill);
        inode.lock.leave(Hold::Biased, &task.lane.holding);
        order::gave(order::of(&task.lane.holding), inode);
    }
    writer::end_alone(task);
    end
}

#[inline(always)]
fn quick_locked(
    task: &Task,
    inode: &Inode,
    len: usize,
    offset: u64,
    fill: impl FnOnce(*mut u8) -> Result<()>,
) -> Option<u64> {
    // Relaxed throughout: under the lock, or inside the sections.
    let end = offset.wrapping_add(len as u64);
    let privileges = inode.mode.load(Relaxed) & (S_ISUID | S_ISGID) | inode.xattr.load(Relaxed);
    let within = offset as usize % PAGE_SIZE;
    // The largest file's end fits an `off_t`, so a sum that wraps exceeds any limit.
    let limit = task.process.fsize_limit.load(Relaxed).min(MAX_SIZE);
    if privileges != 0 || within + len > PAGE_SIZE || end > limit || end < offset {
        return None;
    }
    let page = map::get_low(task, inode, offset / PAGE_SIZE as u64);
    if page.is_none() || is_special(task, inode, page) {
        return None;
    }
    inode.data_seq.begin();
    // SAFETY: within the page.
    let to = unsafe { task.page(page).add(within) };
    // SAFETY: a byte of the region.
    unsafe { bulk::map_around(to) };
    let copied = fill(to);
    if copied.is_ok() {
        let size = inode.size.load(Relaxed);
        changed(task, inode, end.max(size), size, 0);
    }
    inode.data_seq.end();
    copied.ok().map(|()| end)
}

/// Whether a page may be other files' as well, or was taken as space and not written since: the first write
/// to it changes that.
#[inline(always)]
fn is_special(task: &Task, inode: &Inode, page: PageId) -> bool {
    // Relaxed: under the lock.
    match inode.flags.load(Relaxed) & (inode_flags::SPACE | inode_flags::MEMBER) {
        0 => false,
        inode_flags::SPACE => owner::is_space(task.region, page),
        inode_flags::BORROWS => borrow::is_borrowed(task.region, inode, page),
        _ => true,
    }
}

#[inline(never)]
fn write_slow<S: Source>(
    task: &Task,
    held: &HeldFile,
    mut from: S,
    len: usize,
    target: Target,
) -> Result<Done> {
    let done = write_once(task, held, &mut from, len, target);
    if let Err(Errno::ENOSPC) | Ok(Done { full: true, .. }) = done {
        let done = after_reclaim(task, held, &mut from, len, target, done);
        tell::<S>(task, held, &done);
        return done;
    }
    tell::<S>(task, held, &done);
    done
}

/// Notifies the watchers of the written inode. A write by [`quick`] has none, because the lock would not be
/// biased.
#[inline(always)]
fn tell<S: Source>(task: &Task, held: &HeldFile, done: &Result<Done>) {
    if S::IS_TOLD && watched::has_shadow(held.inode) {
        tell_slow(task, held.inode, done);
    }
}

#[cold]
fn tell_slow(task: &Task, inode: &Inode, done: &Result<Done>) {
    if done.is_ok_and(|done| done.bytes != 0) {
        watched::written_slow(task, inode);
    }
}

/// Continues a write that ran out of pages, after unlinked and closed files have been freed. The locks are
/// free meanwhile, so an append continues only if nobody else has appended.
#[cold]
fn after_reclaim<S: Source>(
    task: &Task,
    held: &HeldFile,
    from: &mut S,
    len: usize,
    target: Target,
    done: Result<Done>,
) -> Result<Done> {
    reclaim::all(task);
    let Ok(first) = done else { return write_once(task, held, from, len, target) };
    let target = match target {
        Target::At(_) => Target::At(first.end),
        Target::End | Target::StillEnd(_) => Target::StillEnd(first.end),
    };
    match write_once(task, held, from, len - first.bytes, target) {
        Ok(second) => Ok(Done { bytes: first.bytes + second.bytes, ..second }),
        Err(_) => Ok(first),
    }
}

fn write_once<S: Source>(
    task: &Task,
    held: &HeldFile,
    from: &mut S,
    len: usize,
    target: Target,
) -> Result<Done> {
    let (id, inode) = (held.inode_id(), held.inode);
    let _writing = writer::begin(task, held.mount())?;
    let _lock = inode::enter(task, id);
    let size = inode.size.load(Relaxed); // Relaxed: under the lock.
    let offset = match target {
        Target::At(offset) => offset,
        Target::StillEnd(end) if end != size => return Err(Errno::ENOSPC),
        Target::End | Target::StillEnd(_) => size,
    };
    if len == 0 {
        return Ok(Done { bytes: 0, end: offset, full: false });
    }
    let len = allowed(task, offset, len)?;
    reflink::before_write(task, id, inode, offset, len)?;
    privileges::drop_privileges(task, id, inode);
    inode.data_seq.begin();
    let filled = copy_pages(task, id, from, len, offset);
    let end = offset + filled.bytes as u64;
    if filled.bytes != 0 {
        changed(task, inode, end.max(size), size, filled.pages);
    } else if S::IS_MEMORY {
        changed(task, inode, size, size, 0);
    }
    inode.data_seq.end();
    match filled.stopped {
        Some(errno) if filled.bytes == 0 => Err(errno),
        stopped => Ok(Done { bytes: filled.bytes, end, full: stopped == Some(Errno::ENOSPC) }),
    }
}

/// Number of bytes of a write at `offset` that the limits allow, as in `generic_write_checks`.
#[inline(always)]
fn allowed(task: &Task, offset: u64, len: usize) -> Result<usize> {
    // Relaxed: changes only in its own process.
    let limit = task.process.fsize_limit.load(Relaxed).min(MAX_SIZE);
    if offset >= limit {
        return Err(Errno::EFBIG);
    }
    Ok((limit - offset).min(len as u64) as usize)
}

/// Publishes size, `made` more pages and times in one section, unless they are unchanged: the clock ticks
/// only every few milliseconds.
#[inline(always)]
fn changed(task: &Task, inode: &Inode, size: u64, old: u64, made: u64) {
    let now = task.now();
    if size == old && made == 0 && inode::is_modified_at(inode, now) {
        return;
    }
    inode.seq.begin();
    inode.size.store(size, Relaxed); // Relaxed: inside the sections.
    if made != 0 {
        linking::more_in_section(inode, made);
    }
    inode::touch_in_section(inode, Touch::Modify, now);
    inode.seq.end();
}
