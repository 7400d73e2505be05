//! `/proc/PID/fdinfo/N` of a file of ours, in any process of the run: position, flags, mount, inode number
//! and locks, as they are when it is read.
//!
//! The descriptor is the kernel's, whose text describes the placeholder. The table marks it
//! ([`entry::INFO`]; see [`mark`]). A read of a marked descriptor asks where it leads,
//! so a mark that outlives its descriptor does no harm, and writes the text itself if that is a file of ours.

use lp_abi::linux::{
    __NR_getpid, __NR_lseek, __NR_read, __NR_readlink, O_CLOEXEC, SEEK_CUR, SEEK_SET, iovec,
};
use lp_abi::text::{Writer, number, parse_decimal};
use lp_abi::{Errno, Fd, Result, UserSlice};
use lp_region::life::SlotState;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef, ProcessId, ucopy};
use lp_vfs::table::{FdTable, entry};
use lp_vfs::task::Task;
use lp_vfs::{file_lock, inode, mounts};

use crate::high::fd::mark;
use crate::high::frame::handler::{given_slice, kernel};
use crate::high::run::lock_table;
use crate::low::tools::status;

/// Most that one read returns.
const ROOM: usize = 1024;
/// Times that the text is written again because the number has changed its file meanwhile.
const LOOKS: usize = 16;
/// The kernel's UIO_MAXIOV.
const MOST_PIECES: usize = 1024;

/// [`process_of`] for the id of any thread.
#[cold]
pub(crate) fn process_of_thread(task: &Task, tid: u32) -> Option<ProcessId> {
    process_of(task, tid).or_else(|| {
        let group = status::thread_group(tid).filter(|group| *group != tid)?;
        let is_own = kernel!(__NR_getpid) == group as isize;
        if is_own { Some(task.process_id) } else { process_of(task, group) }
    })
}

/// The process of the run that has this id in the caller's eyes. A child that does not run yet has what its
/// parent had.
pub(crate) fn process_of(task: &Task, pid: u32) -> Option<ProcessId> {
    if task.process.pid.load(Ordering::Relaxed) == pid {
        return Some(task.process_id); // Relaxed, above: the process's own word.
    }
    task.region.processes().find(|id| {
        let process = task.region.process(*id);
        let is_there = matches!(process.life.get().state(), SlotState::Born | SlotState::Live);
        // Relaxed: constant while the process lives.
        is_there && process.pid.load(Ordering::Relaxed) == pid
    })
}

/// The kernel has opened `path` with `flags` as `fd`.
pub(crate) fn opened(task: &Task, fd: Fd, path: &[u8], flags: u32) {
    let is_number = path.last().is_some_and(u8::is_ascii_digit);
    if is_number && (path[0] != b'/' || path.starts_with(b"/proc/")) {
        opened_slow(task, fd, flags);
    }
}

#[cold]
fn opened_slow(task: &Task, fd: Fd, flags: u32) {
    if described(task, fd).is_some() {
        mark::set(task, fd, entry::INFO | mark::close_on_exec(flags));
    }
}

/// The process and its descriptor that `fd` describes, if it is a file of that kind.
fn described(task: &Task, fd: Fd) -> Option<(ProcessId, Fd)> {
    let (link, mut room) = (fd.link(), [0u8; 64]);
    // SAFETY: the path is NUL-terminated, and the kernel writes within `room`; getpid(2) takes no arguments.
    let (length, own) = unsafe {
        let length = lp_abi::syscall!(__NR_readlink, link.as_ptr(), room.as_mut_ptr(), room.len()).ok()?;
        (length as usize, lp_abi::syscall!(__NR_getpid).ok()? as u32)
    };
    let (pid, mut rest) = parse_decimal(room[..length].strip_prefix(b"/proc/")?)?;
    if let Some(thread) = rest.strip_prefix(b"/task/") {
        rest = parse_decimal(thread)?.1;
    }
    let fd = Fd::new(i32::try_from(number(rest.strip_prefix(b"/fdinfo/")?)?).ok()?);
    Some((if pid == own { task.process_id } else { process_of(task, pid)? }, fd))
}

/// read(2) of a marked descriptor. `None` if the kernel has the answer.
#[cold]
pub(crate) fn read(task: &Task, fd: Fd, buf: UserSlice) -> Option<isize> {
    let position = kernel!(__NR_lseek, fd, 0, SEEK_CUR);
    let done = read_at(task, fd, buf, i64::try_from(position).ok().filter(|position| *position >= 0)?)?;
    if done > 0 {
        kernel!(__NR_lseek, fd, position + done, SEEK_SET);
    }
    Some(done)
}

/// readv(2) of a marked descriptor.
#[cold]
pub(crate) fn readv(task: &Task, fd: Fd, iov: UserSlice<iovec>) -> Option<isize> {
    if iov.len() > MOST_PIECES {
        return None;
    }
    let mut total = 0;
    for index in 0..iov.len() {
        // SAFETY: the copy routine handles bad pointers; every bit pattern is an `iovec`.
        let Ok(piece) = (unsafe { ucopy::get(iov.start().as_ptr().wrapping_add(index)) }) else {
            return Some(Errno::EFAULT.to_ret());
        };
        let done = read(task, fd, given_slice(piece.iov_base.addr(), piece.iov_len as usize));
        match done {
            Some(done) if done < 0 && total != 0 => break,
            Some(done) if done >= 0 => total += done,
            done => return done,
        }
        if done.is_some_and(|done| (done as u64) < piece.iov_len) {
            break;
        }
    }
    Some(total)
}

/// pread(2) of a marked descriptor.
#[cold]
pub(crate) fn read_at(task: &Task, fd: Fd, buf: UserSlice, offset: i64) -> Option<isize> {
    let (process, number) = described(task, fd)?;
    let place = FdTable::of(task.region, process).entry(number)?;
    // Whether the descriptor may be read at all.
    let may = kernel!(__NR_read, fd, 0, 0);
    if may < 0 || buf.is_empty() {
        return Some(may);
    }
    let mut room = [0u8; ROOM];
    let mut text = Window { skip: offset as u64, to: &mut room, length: 0 };
    for _ in 0..LOOKS {
        let word = place.load(Ordering::Acquire);
        match word & (entry::OPEN | entry::PARKED) {
            0 if word != entry::TRANSIT => return None,
            entry::OPEN => {}
            _ => return Some(Errno::ENOENT.to_ret()),
        }
        (text.skip, text.length) = (offset as u64, 0);
        if write(task, process, word, &mut text).is_err() {
            return None;
        }
        if place.load(Ordering::Acquire) == word {
            break;
        }
    }
    let length = text.length.min(buf.len());
    // SAFETY: the copy routine handles bad pointers; `length` bytes of `room` are there.
    match unsafe { ucopy::copy(buf.start().as_ptr(), room.as_ptr(), length) } {
        Ok(()) => Some(length as isize),
        Err(errno) => Some(errno.to_ret()),
    }
}

/// What a read returns of a text: `to` gets what follows the first `skip` bytes, as far as it has room.
struct Window<'b> {
    skip: u64,
    to: &'b mut [u8],
    length: usize,
}

impl Window<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let skipped = self.skip.min(bytes.len() as u64);
        self.skip -= skipped;
        let rest = &bytes[skipped as usize..];
        let taken = rest.len().min(self.to.len() - self.length);
        self.to[self.length..self.length + taken].copy_from_slice(&rest[..taken]);
        self.length += taken;
    }

    /// Appends a line of at most 127 bytes.
    fn line(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> Result<()> {
        let mut room = [0u8; 128];
        let mut text = Writer::new(&mut room);
        write(&mut text);
        let length = text.finish().ok_or(Errno::ENOSPC)?;
        self.push(&room[..length]);
        Ok(())
    }
}

/// Like the kernel's seq_show of fdinfo.
fn write(task: &Task, process: ProcessId, word: u64, to: &mut Window<'_>) -> Result<()> {
    let (id, file) = (FileId(word as u32), task.region.file(FileId(word as u32)));
    // Relaxed, below too: momentary values, of this file unless the entry changes.
    let cloexec = if word & entry::CLOEXEC != 0 { O_CLOEXEC } else { 0 };
    let of = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
    let number = inode::number(task.region, of.id);
    to.line(|text| {
        text.push(b"pos:\t");
        text.push_decimal(file.position.load(Ordering::Relaxed));
        text.push(b"\nflags:\t0");
        push_octal(text, file.flags.load(Ordering::Relaxed) | cloexec);
        text.push(b"\nmnt_id:\t");
        text.push_decimal(mounts::shown_id(file.mount()).into());
        text.push(b"\nino:\t");
        text.push_decimal(number);
        text.push(b"\n");
    })?;
    let (mut count, mut done) = (0, Ok(()));
    file_lock::each_through(task, of.id, id, process, |lock| {
        count += 1;
        done = done.and_then(|()| {
            to.line(|text| {
                text.push(b"lock:\t");
                lock_table::push(task, text, count, of.id, lock);
            })
        });
    });
    done
}

fn push_octal(text: &mut Writer<'_>, number: u32) {
    let digits = (u32::BITS - number.leading_zeros()).div_ceil(3).max(1);
    for place in (0..digits).rev() {
        text.push(&[b'0' + (number >> (3 * place) & 7) as u8]);
    }
}
