//! copy_file_range(2), sendfile(2), splice(2): content moves without passing through the program.
//!
//! What leaves for the kernel is copied into it: a page handed over by reference could be recycled before it is read.

use lp_abi::ioctl::FIONREAD;
use lp_abi::linux::{
    __NR_fcntl, __NR_fstat, __NR_ioctl, __NR_pread64, __NR_read, __NR_write, F_GETPIPE_SZ, O_APPEND, S_IFBLK,
    S_IFCHR, S_IFIFO, S_IFMT, S_IFREG, SPLICE_F_GIFT, SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK, stat,
};
use lp_abi::{Errno, MAX_RW_COUNT, PAGE_SIZE, Result};
use lp_region::records::{Inode, file_mode};
use lp_region::sync::Ordering::Relaxed;
use lp_region::ucopy;

use crate::map::{self, Map};
use crate::table::{self, Held};
use crate::task::Task;
use crate::{file, inode, read, write};

/// Most bytes that move in one step.
const STEP: usize = 1 << 20;

/// What a hole is read from.
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// Devices that sendfile(2) takes: /dev/zero, /dev/full, /dev/random, /dev/urandom.
const SENT_DEVICES: [u64; 4] = [0x105, 0x107, 0x108, 0x109];

/// Copies between two files of ours; a null offset means the position. Between ours and another file system the kernel
/// answers `EXDEV`, and so does the door.
///
/// # Errors
/// `EBADF` when one is not open for what it takes, or the target with `O_APPEND`; `EISDIR`; `EINVAL` for flags, ranges of
/// one file that overlap, an offset below zero; `EOVERFLOW`; those of write(2).
pub fn copy_file_range(
    task: &Task,
    fd_in: i32,
    off_in: *mut i64,
    fd_out: i32,
    off_out: *mut i64,
    len: usize,
    flags: u32,
) -> Result<usize> {
    let from = table::fget(task, fd_in)?;
    let to = table::fget_second(task, fd_out)?;
    let (mode_in, mode_out) = (from.file.mode.load(Relaxed), to.file.mode.load(Relaxed)); // Relaxed: immutable.
    if (mode_in | mode_out) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    let at_in = offset(&from, off_in).map_err(unsigned)?;
    let at_out = offset(&to, off_out).map_err(unsigned)?;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    if (mode_in | mode_out) & file_mode::DIR != 0 {
        return Err(Errno::EISDIR);
    }
    may_copy(&from, &to)?;
    if to.file.flags.load(Relaxed) & O_APPEND != 0 {
        return Err(Errno::EBADF);
    }
    let len = len.min(MAX_RW_COUNT) as u64;
    let end = |at: u64| at.checked_add(len).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EOVERFLOW);
    let end_in = end(at_in)?;
    end(at_out)?;
    // generic_copy_file_checks: what counts is what there is to copy.
    let end_in = end_in.min(from.inode.size.load(Relaxed).max(at_in));
    let len = end_in - at_in;
    if from.inode_id() == to.inode_id() && at_in < at_out + len && at_out < end_in {
        return Err(Errno::EINVAL);
    }
    let done = transfer(task, &from, at_in, len as usize, &mut Sink::File(&to, at_out))?;
    advance(&from, off_in, at_in + done as u64)?;
    advance(&to, off_out, at_out + done as u64)?;
    Ok(done)
}

/// Sends content of `fd_in`, from `offset` or the position on, to `fd_out`; at least one is ours.
///
/// # Errors
/// `EBADF`; `EINVAL` when `fd_in` is no regular file or `fd_out` is open with `O_APPEND`; those of write(2).
pub fn sendfile(task: &Task, fd_out: i32, fd_in: i32, off_in: *mut i64, count: usize) -> Result<usize> {
    let count = count.min(MAX_RW_COUNT);
    if !table::is_ours(task, fd_in) {
        return receive(task, fd_out, fd_in, off_in, count);
    }
    let from = table::fget(task, fd_in)?;
    let at = offset(&from, off_in)?;
    let done = if table::is_ours(task, fd_out) {
        let to = table::fget_second(task, fd_out)?;
        opened_for(&from, file_mode::READ).and_then(|()| opened_for(&to, file_mode::WRITE))?;
        not_append(&to)?;
        // splice_direct_to_actor: nothing to send asks nobody for its type.
        if count == 0 {
            return Ok(0);
        }
        may_copy(&from, &to)?;
        let at_out = to.file.position.load(Relaxed);
        let done = transfer(task, &from, at, count, &mut Sink::File(&to, at_out))?;
        advance(&to, core::ptr::null_mut(), at_out + done as u64)?;
        done
    } else {
        readable(&from)?;
        transfer(task, &from, at, count, &mut Sink::Host(fd_out))?
    };
    advance(&from, off_in, at + done as u64)?;
    Ok(done)
}

/// Moves content between a file of ours and a pipe.
///
/// # Errors
/// `EBADF`; `EINVAL` for unknown flags, without a pipe, or for a target with `O_APPEND`; `ESPIPE` for the offset of a pipe;
/// `EAGAIN` with `SPLICE_F_NONBLOCK`; those of read(2) and write(2).
pub fn splice(
    task: &Task,
    fd_in: i32,
    off_in: *mut i64,
    fd_out: i32,
    off_out: *mut i64,
    len: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT) != 0 {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let ours = (table::is_ours(task, fd_in), table::is_ours(task, fd_out));
    let (pipe, its_offset) = if ours.0 { (fd_out, off_out) } else { (fd_in, off_in) };
    if ours == (true, true) || host_type(pipe)? != S_IFIFO {
        return Err(Errno::EINVAL);
    }
    if !its_offset.is_null() {
        return Err(Errno::ESPIPE);
    }
    let nonblocking = flags & SPLICE_F_NONBLOCK != 0;
    if ours.0 {
        let from = table::fget(task, fd_in)?;
        readable(&from)?;
        let at = offset(&from, off_in)?;
        let len = match pipe_room(pipe)? {
            0 if nonblocking => return Err(Errno::EAGAIN),
            // A write of this size waits for room and then does not stop half-way.
            0 => len.min(PAGE_SIZE),
            room => len.min(room),
        };
        let done = transfer(task, &from, at, len, &mut Sink::Host(pipe))?;
        advance(&from, off_in, at + done as u64)?;
        return Ok(done);
    }
    let to = table::fget(task, fd_out)?;
    writable(&to)?;
    not_append(&to)?;
    let at = offset(&to, off_out)?;
    if nonblocking && waiting(pipe)? == 0 {
        return Err(Errno::EAGAIN);
    }
    let done = drain(task, &to, at, pipe, len)?;
    advance(&to, off_out, at + done as u64)?;
    Ok(done)
}

/// Where a call starts: at its offset argument or at the position.
fn offset(held: &Held, given: *const i64) -> Result<u64> {
    if given.is_null() {
        return Ok(held.file.position.load(Relaxed)); // Relaxed: as Linux reads f_pos here.
    }
    // SAFETY: the program's memory.
    let value = unsafe { ucopy::get(given) }?;
    if value < 0 { Err(Errno::EINVAL) } else { Ok(value as u64) }
}

/// generic_copy_file_checks: an offset below zero overflows, like a sum.
fn unsigned(errno: Errno) -> Errno {
    if errno == Errno::EINVAL { Errno::EOVERFLOW } else { errno }
}

/// Stores where a call ended: in its offset argument or as the position.
fn advance(held: &Held, given: *mut i64, end: u64) -> Result<()> {
    if given.is_null() {
        held.file.position.store(end, Relaxed); // Relaxed: as Linux stores f_pos here.
        return Ok(());
    }
    // SAFETY: the program's memory.
    unsafe { ucopy::put(given, &(end as i64)) }
}

fn readable(from: &Held) -> Result<()> {
    opened_for(from, file_mode::READ).and_then(|()| regular(from))
}

fn writable(to: &Held) -> Result<()> {
    opened_for(to, file_mode::WRITE).and_then(|()| regular(to))
}

/// Both are asked for their access before either for its type.
fn may_copy(from: &Held, to: &Held) -> Result<()> {
    opened_for(from, file_mode::READ)?;
    opened_for(to, file_mode::WRITE)?;
    regular(from).and_then(|()| regular(to))
}

fn opened_for(held: &Held, access: u32) -> Result<()> {
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    if mode & access == 0 || mode & file_mode::PATH != 0 { Err(Errno::EBADF) } else { Ok(()) }
}

fn regular(held: &Held) -> Result<()> {
    if held.file.mode.load(Relaxed) & file_mode::REGULAR == 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

fn not_append(to: &Held) -> Result<()> {
    if to.file.flags.load(Relaxed) & O_APPEND != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Where content goes.
enum Sink<'h, 'r> {
    /// Into a file of ours, at this offset.
    File(&'h Held<'r>, u64),
    /// To a descriptor of the kernel's.
    Host(i32),
}

impl Sink<'_, '_> {
    /// Takes bytes; gives how many.
    fn put(&mut self, task: &Task, from: *const u8, bytes: usize) -> Result<usize> {
        match self {
            Sink::File(to, at) => {
                let done = write::store(task, to, from, bytes, *at)?;
                *at += done as u64;
                Ok(done)
            }
            // SAFETY: the bytes are the region's or zeros.
            Sink::Host(fd) => unsafe { lp_abi::syscall!(__NR_write, *fd, from, bytes) },
        }
    }
}

/// Moves `len` bytes from `at` on, or to the end of the file, straight from its pages.
fn transfer(task: &Task, from: &Held, at: u64, len: usize, to: &mut Sink) -> Result<usize> {
    let mut done = 0;
    while done < len {
        let (start, bytes) = chunk(task, from.inode, at + done as u64, len - done);
        if bytes == 0 {
            break;
        }
        match to.put(task, start, bytes) {
            Ok(moved) => {
                done += moved;
                if moved < bytes {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    inode::accessed(task, from.inode);
    Ok(done)
}

/// Bytes of content at `at` that lie in one piece; none at the end.
fn chunk(task: &Task, inode: &Inode, at: u64, len: usize) -> (*const u8, usize) {
    let size = inode.size.load(Relaxed); // Relaxed: a moment's.
    let len = (len as u64).min(size.saturating_sub(at)).min(STEP as u64) as usize;
    let within = at as usize % PAGE_SIZE;
    let pages = (within + len).div_ceil(PAGE_SIZE) as u64;
    let piece = map::piece(task.region, Map::of(inode), at / PAGE_SIZE as u64, pages);
    match read::span(task.region, piece.page, piece.len) {
        // SAFETY: `span` checked that the pages are in the region.
        Some(base) => unsafe {
            (task.region.base().add(base + within), len.min(piece.len as usize * PAGE_SIZE - within))
        },
        None => (ZEROS.as_ptr(), len.min(PAGE_SIZE - within)),
    }
}

/// sendfile(2) from a file of the host's into one of ours.
fn receive(task: &Task, fd_out: i32, fd_in: i32, off_in: *mut i64, count: usize) -> Result<usize> {
    // do_sendfile: an offset of what has none comes before everything about the target.
    if !off_in.is_null() {
        host_position(fd_in)?;
    }
    let to = table::fget(task, fd_out)?;
    writable(&to)?;
    not_append(&to)?;
    if !can_be_sent(fd_in)? {
        return Err(Errno::EINVAL);
    }
    let position = file::position(task, &to);
    let at = position.get();
    let mut done = 0;
    while done < count {
        let room = task.scratch.walk.get();
        let most = (count - done).min(PAGE_SIZE);
        // The offset moves only as far as bytes were stored: a failed store leaves them to be read again.
        let start = if off_in.is_null() { host_position(fd_in)? } else { host_offset(off_in)? };
        // SAFETY: the kernel writes within the buffer, which is the task's.
        let got = unsafe { lp_abi::syscall!(__NR_pread64, fd_in, room, most, start) };
        let stored = match got {
            Ok(0) => break,
            Ok(got) => write::store(task, &to, room.cast(), got, at + done as u64),
            Err(errno) => Err(errno),
        };
        match stored {
            Ok(stored) => {
                done += stored;
                set_host_offset(fd_in, off_in, start + stored as i64)?;
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    position.set(at + done as u64);
    Ok(done)
}

fn host_position(fd: i32) -> Result<i64> {
    use lp_abi::linux::{__NR_lseek, SEEK_CUR};
    // SAFETY: asks for the position.
    unsafe { lp_abi::syscall!(__NR_lseek, fd, 0, SEEK_CUR) }.map(|at| at as i64)
}

fn host_offset(given: *const i64) -> Result<i64> {
    // SAFETY: the program's memory.
    unsafe { ucopy::get(given) }
}

fn set_host_offset(fd: i32, given: *mut i64, at: i64) -> Result<()> {
    use lp_abi::linux::{__NR_lseek, SEEK_SET};
    if given.is_null() {
        // SAFETY: moves the position as the program's call is to do.
        return unsafe { lp_abi::syscall!(__NR_lseek, fd, at, SEEK_SET) }.map(drop);
    }
    // SAFETY: the program's memory.
    unsafe { ucopy::put(given, &at) }
}

/// Moves what a pipe holds, at least a byte, into a file.
fn drain(task: &Task, to: &Held, at: u64, pipe: i32, len: usize) -> Result<usize> {
    let mut done = 0;
    while done < len && (done == 0 || waiting(pipe)? > 0) {
        let room = task.scratch.walk.get();
        let most = (len - done).min(PAGE_SIZE);
        // SAFETY: the kernel writes within the buffer, which is the task's.
        let got = match unsafe { lp_abi::syscall!(__NR_read, pipe, room, most) } {
            Ok(0) => break,
            Ok(got) => got,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        };
        let stored = write::store(task, to, room.cast(), got, at + done as u64)?;
        done += stored;
        if stored < got {
            break;
        }
    }
    Ok(done)
}

/// Bytes that a pipe holds.
fn waiting(pipe: i32) -> Result<usize> {
    let mut bytes = 0i32;
    // SAFETY: the kernel writes four bytes.
    unsafe { lp_abi::syscall!(__NR_ioctl, pipe, FIONREAD, &raw mut bytes) }?;
    Ok(bytes as usize)
}

/// Bytes that a pipe has room for: whole pages, as it keeps them.
fn pipe_room(pipe: i32) -> Result<usize> {
    // SAFETY: asks for the size.
    let size = unsafe { lp_abi::syscall!(__NR_fcntl, pipe, F_GETPIPE_SZ) }?;
    let used = waiting(pipe)?.next_multiple_of(PAGE_SIZE);
    Ok(size.saturating_sub(used))
}

/// Whether a file of the host's has a position and content for sendfile(2).
fn can_be_sent(fd: i32) -> Result<bool> {
    let attributes = host_attributes(fd)?;
    Ok(match attributes.st_mode & S_IFMT {
        S_IFREG | S_IFBLK => true,
        S_IFCHR => SENT_DEVICES.contains(&attributes.st_rdev),
        _ => false,
    })
}

/// Type of a file of the host's.
fn host_type(fd: i32) -> Result<u32> {
    host_attributes(fd).map(|attributes| attributes.st_mode & S_IFMT)
}

fn host_attributes(fd: i32) -> Result<stat> {
    let mut value = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: the kernel writes a stat; all zeros is one too.
    unsafe {
        lp_abi::syscall!(__NR_fstat, fd, value.as_mut_ptr())?;
        Ok(value.assume_init())
    }
}
