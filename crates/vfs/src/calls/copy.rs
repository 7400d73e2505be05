//! copy_file_range(2), sendfile(2), splice(2): content moves without passing through the program.
//!
//! The kernel gets a validated copy. A call that waits while it holds the file's pages could deliver their
//! contents after they have become another file's.

use core::cell::Cell;

use lp_abi::linux::{
    __NR_pread64, __NR_write, O_APPEND, S_IFBLK, S_IFCHR, S_IFIFO, S_IFMT, S_IFREG, SPLICE_F_GIFT,
    SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK,
};
use lp_abi::{Errno, Fd, MAX_RW_COUNT, PAGE_SIZE, Result, UserPtr};
use lp_region::records::{file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::ucopy;

use crate::caller::below;
use crate::caller::event::Touched;
use crate::caller::task::Task;
use crate::calls::{ends, write};
use crate::content::buffer::Single;
use crate::content::pipe::{Drain, Pipe, PipeEnd, PipeWait};
use crate::content::snapshot;
use crate::content::source::FileContent;
use crate::descriptors::fget::HeldFile;
use crate::descriptors::position;
use crate::inodes::{inode, reflink, watched};
use crate::lane::writer;
use crate::rights::privileges;

/// Maximum bytes moved between two files in one section of the target.
const STEP: usize = 1 << 20;

/// Smallest file, in bytes, whose content a copy shares.
const SHARED_LEAST: u64 = 16 << 10;

/// Devices that sendfile(2) accepts: /dev/zero, /dev/full, /dev/random, /dev/urandom.
const SENT_DEVICES: [u64; 4] = [0x105, 0x107, 0x108, 0x109];

/// Copies between two files of ours. A null offset means the position. Between ours and another file system
/// the kernel returns `EXDEV`, and so must the door.
///
/// # Errors
/// `EBADF` if one is not open for its role, or the target has `O_APPEND`; `EISDIR`; `EXDEV` between file
/// systems of ours; `EPERM` if the target is immutable; `EINVAL` for flags, overlapping ranges of one file, a
/// negative offset; `EOVERFLOW`; those of write(2).
pub fn copy_file_range(
    task: &Task,
    fd_in: Fd,
    off_in: UserPtr<i64>,
    fd_out: Fd,
    off_out: UserPtr<i64>,
    len: usize,
    flags: u32,
) -> Result<usize> {
    let from = task.fget(fd_in)?;
    let to = task.fget_second(fd_out)?;
    // Relaxed: immutable.
    let (mode_in, mode_out) = (from.file.mode.load(Relaxed), to.file.mode.load(Relaxed));
    if (mode_in | mode_out) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    let (at_in, at_out) = (start(&from, off_in)?, start(&to, off_out)?);
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
    // Relaxed, both: immutable.
    if from.inode.root.load(Relaxed) != to.inode.root.load(Relaxed) {
        return Err(Errno::EXDEV);
    }
    if to.inode.flags.load(Relaxed) & inode_flags::IMMUTABLE != 0 {
        return Err(Errno::EPERM);
    }
    let len = copied(&from, at_in, &to, at_out, len)?;
    if len == 0 {
        return Ok(0);
    }
    let (at_in, at_out) = (at_in as u64, at_out as u64);
    let done = between(task, (&from, at_in), (&to, at_out), len as usize)?;
    advance(&from, off_in, at_in + done as u64)?;
    advance(&to, off_out, at_out + done as u64)?;
    Ok(done)
}

/// The kernel's generic_copy_file_checks and rw_verify_area: how much of `len` bytes can be copied.
fn copied(from: &HeldFile, at_in: i64, to: &HeldFile, at_out: i64, len: usize) -> Result<u64> {
    let wraps = |at: i64| (at as u64).checked_add(len as u64).is_none();
    if wraps(at_in) || wraps(at_out) {
        return Err(Errno::EOVERFLOW);
    }
    // Only what exists in the source counts.
    let size = from.inode.size.load(Relaxed) as i64;
    let mut count = if at_in >= size { 0 } else { (len as u64).min(at_in.abs_diff(size)) };
    if at_out == i64::MAX {
        return Err(Errno::EFBIG);
    }
    count = count.min(at_out.abs_diff(i64::MAX));
    let end = |at: i64| at.wrapping_add(count as i64);
    if from.inode_id() == to.inode_id() && end(at_out) > at_in && at_out < end(at_in) {
        return Err(Errno::EINVAL);
    }
    if at_in < 0 || at_out < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(count.min(MAX_RW_COUNT as u64))
}

/// Sends content of `fd_in`, from `offset` or the position, to `fd_out`. At least one of them is ours.
///
/// # Errors
/// `EBADF`; `EINVAL` if `fd_in` is not a regular file or `fd_out` is open with `O_APPEND`; those of write(2).
pub fn sendfile(task: &Task, fd_out: Fd, fd_in: Fd, off_in: UserPtr<i64>, count: usize) -> Result<usize> {
    if !task.table.is_ours(fd_in) {
        return receive(task, fd_out, fd_in, off_in, count);
    }
    let from = task.fget(fd_in)?;
    let at = start(&from, off_in)?;
    // The kernel's do_sendfile looks at the source before it looks at the target.
    opened_for(&from, file_mode::READ)?;
    let at = verified(at, count)?;
    let count = count.min(MAX_RW_COUNT);
    let done = if task.table.is_ours(fd_out) {
        let to = task.fget_second(fd_out)?;
        opened_for(&from, file_mode::READ).and_then(|()| opened_for(&to, file_mode::WRITE))?;
        verified(to.file.position.load(Relaxed) as i64, count)?;
        not_append(&to)?;
        // The kernel's splice_direct_to_actor: with nothing to send, types are not checked; what cannot be
        // sent counts as read.
        let accessed = || inode::read_by(task, from.file, from.inode, 0);
        if count == 0 {
            accessed();
            return Ok(0);
        }
        may_copy(&from, &to).inspect_err(|_| accessed())?;
        let at_out = to.file.position.load(Relaxed);
        let done = between(task, (&from, at), (&to, at_out), count)?;
        advance(&to, UserPtr::NULL, at_out + done as u64)?;
        done
    } else {
        let kind = ends::host_type(fd_out)?;
        ends::opened_for(task, fd_out, file_mode::WRITE)?;
        match kind {
            // The kernel's do_sendfile: into a pipe it is splice(2).
            S_IFIFO => {
                let pipe = Pipe::new(fd_out, PipeEnd::Write, PipeWait::Blocks)?;
                if count == 0 {
                    return pipe.wait_for_space(task).map(|()| 0);
                }
                any_into_pipe(task, &from, at, pipe, count)?
            }
            _ => {
                not_append_host(task, fd_out)?;
                let is_regular = regular(&from).is_ok();
                // An object without a type, such as an eventfd, takes nothing from a file.
                if count != 0 && kind != 0 && is_regular {
                    to_host(task, &from, at, fd_out, count)?
                } else {
                    inode::read_by(task, from.file, from.inode, 0);
                    // Relaxed: as the kernel reads it. At the end it does not come to ask the target.
                    let at_end = is_regular && at >= from.inode.size.load(Relaxed);
                    return if count == 0 || at_end { Ok(0) } else { Err(Errno::EINVAL) };
                }
            }
        }
    };
    advance(&from, off_in, at + done as u64)?;
    Ok(done)
}

/// Moves content between a file of ours and a pipe.
///
/// # Errors
/// `EBADF`; `EINVAL` for unknown flags, without a pipe, or for a target with `O_APPEND`; `ESPIPE` for an
/// offset of a pipe; `EAGAIN` with `SPLICE_F_NONBLOCK`; those of read(2) and write(2).
pub fn splice(
    task: &Task,
    fd_in: Fd,
    off_in: UserPtr<i64>,
    fd_out: Fd,
    off_out: UserPtr<i64>,
    len: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT) != 0 {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let ours = (task.table.is_ours(fd_in), task.table.is_ours(fd_out));
    let (pipe, its_offset, file) = if ours.0 { (fd_out, off_out, fd_in) } else { (fd_in, off_in, fd_out) };
    let has_pipe = ours != (true, true) && ends::host_type(pipe)? == S_IFIFO;
    // The kernel's fdget does not find O_PATH, and looks for both before it looks for pipes.
    ends::opened(task, file)?;
    if has_pipe && !its_offset.is_null() {
        ends::opened(task, pipe)?;
        return Err(Errno::ESPIPE);
    }
    ends::both(task, fd_in, fd_out, [off_out, off_in])?;
    if !has_pipe {
        return Err(Errno::EINVAL);
    }
    let held = task.fget(file)?;
    let wait = if flags & SPLICE_F_NONBLOCK != 0 { PipeWait::Never } else { PipeWait::Blocks };
    if ours.0 {
        let at = start(&held, off_in)?;
        let pipe = Pipe::new(pipe, PipeEnd::Write, wait);
        opened_for(&held, file_mode::READ)?;
        let pipe = pipe?;
        let at = verified(at, len)?;
        let done = any_into_pipe(task, &held, at, pipe, len)?;
        advance(&held, off_in, at + done as u64)?;
        return Ok(done);
    }
    let at = start(&held, off_out)?;
    let pipe = Pipe::new(pipe, PipeEnd::Read, wait)?;
    opened_for(&held, file_mode::WRITE)?;
    not_append(&held)?;
    let at = verified(at, len)?;
    regular(&held)?;
    let done = out_of_pipe(task, &held, at, pipe, len)?;
    advance(&held, off_out, at + done as u64)?;
    Ok(done)
}

/// Start of a transfer: its offset argument or the position.
fn start(held: &HeldFile, given: UserPtr<i64>) -> Result<i64> {
    if given.is_null() {
        return Ok(held.file.position.load(Relaxed) as i64); // Relaxed: as Linux reads f_pos here.
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::get(given.as_ptr()) }
}

/// The kernel's rw_verify_area: a range that an `off_t` holds.
fn verified(at: i64, len: usize) -> Result<u64> {
    let end = i64::try_from(len).ok().and_then(|len| at.checked_add(len));
    if at < 0 || end.is_none() { Err(Errno::EINVAL) } else { Ok(at as u64) }
}

/// Stores the end of a transfer in its offset argument or as the position.
fn advance(held: &HeldFile, given: UserPtr<i64>, end: u64) -> Result<()> {
    if given.is_null() {
        held.file.position.store(end, Relaxed); // Relaxed: as Linux stores f_pos here.
        return Ok(());
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(given.as_ptr(), &(end as i64)) }
}

fn writable(to: &HeldFile) -> Result<()> {
    opened_for(to, file_mode::WRITE).and_then(|()| regular(to))
}

/// Checks the access of both before the type of either.
fn may_copy(from: &HeldFile, to: &HeldFile) -> Result<()> {
    opened_for(from, file_mode::READ)?;
    opened_for(to, file_mode::WRITE)?;
    regular(from).and_then(|()| regular(to))
}

fn opened_for(held: &HeldFile, access: u32) -> Result<()> {
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    if mode & access == 0 || mode & file_mode::PATH != 0 { Err(Errno::EBADF) } else { Ok(()) }
}

fn regular(held: &HeldFile) -> Result<()> {
    if held.file.mode.load(Relaxed) & file_mode::REGULAR == 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

fn not_append_host(task: &Task, fd: Fd) -> Result<()> {
    if ends::opened(task, fd)?.1 & O_APPEND != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

fn not_append(to: &HeldFile) -> Result<()> {
    if to.file.flags.load(Relaxed) & O_APPEND != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Copies up to `len` bytes between two files of ours.
fn between(
    task: &Task,
    (from, start): (&HeldFile, u64),
    (to, at): (&HeldFile, u64),
    len: usize,
) -> Result<usize> {
    below::complete(task, from.inode)?;
    let is_whole = start == 0 && at == 0;
    let content = match from.inode_id() == to.inode_id() {
        true => FileContent::of_target,
        false => FileContent::new,
    };
    let mut content = content(task.region, from.inode, start);
    let done = match is_whole.then(|| by_reference(task, from, to, len)).flatten() {
        Some(done) => done,
        None => in_steps(task, from, len, STEP, |done, most| {
            // Limited to what exists, so that the target's limits do not fail a call at the source's end.
            // Relaxed: the copy checks again.
            let there = from.inode.size.load(Relaxed).saturating_sub(start + done as u64);
            let most = (most as u64).min(there) as usize;
            if most == 0 {
                return Ok(0);
            }
            match write::store(task, to, &mut content, most, at + done as u64) {
                // The source was truncated meanwhile.
                Err(Errno::EFAULT) => Ok(0),
                stored => stored,
            }
        })?,
    };
    if done != 0 {
        watched::touched(task, to.inode_id(), to.inode, Touched::Modified);
    }
    Ok(done)
}

/// [`between`] of a whole file to an empty one, which then share the content; `None` if that is not possible.
fn by_reference(task: &Task, from: &HeldFile, to: &HeldFile, len: usize) -> Option<usize> {
    let size = from.inode.size.load(Relaxed); // Relaxed: read again under the lock.
    if size < SHARED_LEAST || (len as u64) < size {
        return None;
    }
    let done = {
        let (id, inode) = (to.inode_id(), to.inode);
        let _writing = writer::begin(task, to.mount()).ok()?;
        let _to = inode::enter(task, id);
        // Who holds it may be stopped.
        let _from = inode::lock_soon(task, from.inode_id())?;
        let size = from.inode.size.load(Relaxed); // Relaxed: under the lock.
        let is_within = size <= len as u64 && size <= task.process.fsize_limit.load(Relaxed);
        if !is_within || !reflink::may_share(task, from.inode_id(), inode) {
            return None;
        }
        privileges::drop_privileges(task, id, inode);
        reflink::share(task, from.inode_id(), id).ok()? as usize
    };
    inode::read_by(task, from.file, from.inode, done);
    Some(done)
}

/// Writes up to `len` bytes from `at` to a kernel descriptor that is not a pipe.
fn to_host(task: &Task, from: &HeldFile, at: u64, fd: Fd, len: usize) -> Result<usize> {
    below::complete(task, from.inode)?;
    let room = task.scratch.whole();
    in_steps(task, from, len, room.len(), |done, most| {
        let to = Single::new(room.first(most))?;
        let got = snapshot::snapshot(task.region, from.inode, to, most, at + done as u64)?;
        if got == 0 {
            return Ok(0);
        }
        // SAFETY: the kernel reads within the buffer, which belongs to the task.
        unsafe { (task.blocking)(__NR_write, [fd.word(), room.start().addr(), got, 0, 0, 0]) }
    })
}

/// [`into_pipe`] of a file of any type: the kernel looks at it once the pipe has space.
fn any_into_pipe(task: &Task, from: &HeldFile, at: u64, pipe: Pipe, len: usize) -> Result<usize> {
    if let Err(errno) = regular(from) {
        pipe.wait_for_space(task)?;
        return Err(errno);
    }
    match into_pipe(task, from, at, pipe, len)? {
        // At the end of the file nothing was written that would have met a pipe without readers.
        0 => pipe.wait_for_space(task).map(|()| 0),
        done => Ok(done),
    }
}

/// Moves up to `len` bytes from `at` into a pipe: waits for space, then writes what fits.
fn into_pipe(task: &Task, from: &HeldFile, at: u64, pipe: Pipe, len: usize) -> Result<usize> {
    below::complete(task, from.inode)?;
    let room = task.scratch.whole();
    loop {
        pipe.ready(task)?;
        let fits = pipe.room(at)?.min(len);
        let moved = in_steps(task, from, fits, room.len(), |done, most| {
            let to = Single::new(room.first(most))?;
            match snapshot::snapshot(task.region, from.inode, to, most, at + done as u64)? {
                0 => Ok(0),
                got => pipe.put(task, room.start().as_ptr(), got),
            }
        });
        // Another writer was faster.
        if moved != Err(Errno::EAGAIN) || !pipe.waits() {
            return moved;
        }
    }
}

/// Moves what a pipe contains, at least a byte, into a file. What the file does not take stays in the pipe.
fn out_of_pipe(task: &Task, to: &HeldFile, at: u64, pipe: Pipe, len: usize) -> Result<usize> {
    let last = Cell::new(Ok(0));
    while pipe.ready(task)? {
        last.set(Ok(0));
        let stored = write::store(task, to, Drain::new(pipe, &last)?, len, at);
        match (stored, last.get()) {
            // Another reader was faster.
            (Err(Errno::EFAULT), Err(Errno::EAGAIN)) if pipe.waits() => {}
            (Err(Errno::EFAULT), done) => return done,
            (stored, _) => return stored,
        }
    }
    Ok(0)
}

/// Calls `step`, with the bytes done and the maximum for the step, until `len` bytes are done, a step does
/// less, or a signal waits. If anything was done, that result takes precedence over an error.
fn in_steps(
    task: &Task,
    from: &HeldFile,
    len: usize,
    most: usize,
    mut step: impl FnMut(usize, usize) -> Result<usize>,
) -> Result<usize> {
    let mut done = 0;
    while done < len {
        // The kernel's splice_from_pipe_next: a signal counts even if nothing has to be waited for.
        if task.is_interrupted() {
            if done == 0 {
                return Err(Errno::EINTR);
            }
            break;
        }
        let wanted = most.min(len - done);
        match step(done, wanted) {
            Ok(moved) => {
                done += moved;
                if moved < wanted {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    inode::read_by(task, from.file, from.inode, done);
    Ok(done)
}

/// sendfile(2) from a host file into one of ours.
fn receive(task: &Task, fd_out: Fd, fd_in: Fd, off_in: UserPtr<i64>, count: usize) -> Result<usize> {
    ends::opened_for(task, fd_in, file_mode::READ)?;
    // The kernel's do_sendfile: an offset for a file that has none fails before any check of the target.
    let start = match off_in.is_null() {
        true => host_position(fd_in).unwrap_or(0),
        false => takes_offsets(fd_in).and_then(|()| host_offset(off_in))?,
    };
    verified(start, count)?;
    let count = count.min(MAX_RW_COUNT);
    let to = task.fget(fd_out)?;
    writable(&to)?;
    verified(to.file.position.load(Relaxed) as i64, count)?;
    not_append(&to)?;
    // The kernel's splice_direct_to_actor: with nothing to send, types are not checked.
    if count == 0 && host_position(fd_in).is_ok() {
        return Ok(0);
    }
    if !can_be_sent(fd_in)? {
        return Err(Errno::EINVAL);
    }
    let position = position::hold(task, &to);
    let at = position.get();
    let mut done = 0;
    while done < count {
        if task.is_interrupted() {
            if done == 0 {
                return Err(Errno::EINTR);
            }
            break;
        }
        let room = task.scratch.whole().first((count - done).min(PAGE_SIZE));
        // The offset advances only by the bytes stored: what a failed store leaves is read again.
        let start = if off_in.is_null() { host_position(fd_in)? } else { host_offset(off_in)? };
        // SAFETY: the kernel writes within the buffer, which belongs to the task.
        let got = unsafe { lp_abi::syscall!(__NR_pread64, fd_in, room.start(), room.len(), start) };
        let stored = match got {
            Ok(0) => break,
            Ok(got) => write::store(task, &to, Single::new(room.first(got))?, got, at + done as u64),
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

/// Whether a file of the host's has offsets: the kernel's FMODE_PREAD, which an epoll instance that lseek(2)
/// accepts has not.
///
/// # Errors
/// `ESPIPE`.
fn takes_offsets(fd: Fd) -> Result<()> {
    // SAFETY: the kernel writes nothing.
    match unsafe { lp_abi::syscall!(__NR_pread64, fd, 0, 0, 0) } {
        Err(Errno::ESPIPE) => Err(Errno::ESPIPE),
        _ => Ok(()),
    }
}

fn host_position(fd: Fd) -> Result<i64> {
    use lp_abi::linux::{__NR_lseek, SEEK_CUR};
    // SAFETY: lseek(2) takes no pointers.
    unsafe { lp_abi::syscall!(__NR_lseek, fd, 0, SEEK_CUR) }.map(|at| at as i64)
}

fn host_offset(given: UserPtr<i64>) -> Result<i64> {
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::get(given.as_ptr()) }
}

fn set_host_offset(fd: Fd, given: UserPtr<i64>, at: i64) -> Result<()> {
    use lp_abi::linux::{__NR_lseek, SEEK_SET};
    if given.is_null() {
        // SAFETY: lseek(2) takes no pointers; the program's call moves the position.
        return unsafe { lp_abi::syscall!(__NR_lseek, fd, at, SEEK_SET) }.map(drop);
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(given.as_ptr(), &at) }
}

/// Whether a host file has a position and content for sendfile(2).
fn can_be_sent(fd: Fd) -> Result<bool> {
    let attributes = ends::host_attributes(fd)?;
    Ok(match attributes.st_mode & S_IFMT {
        S_IFREG | S_IFBLK => true,
        S_IFCHR => SENT_DEVICES.contains(&attributes.st_rdev),
        _ => false,
    })
}
