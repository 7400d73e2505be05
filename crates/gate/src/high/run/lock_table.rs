//! `/proc/locks`: the host's lines, and those of the locks on files in mounts.
//!
//! The file that the program has opened is read to its end and replaced by a memfd with the complete text as
//! of that moment. The host's lines include the record locks by which the processes of the run show that they
//! are alive: those are the gate's own and left out.

use lp_abi::text::Writer;
use lp_abi::{Errno, Fd, Result};
use lp_region::InodeId;
use lp_region::sync::Ordering;
use lp_vfs::lock::{Lock, LockType, family};
use lp_vfs::task::Task;
use lp_vfs::{file_lock, inode, record_lock, stat};

use crate::high::run::proc_file;
use crate::low::tools::identity;

/// Where it is.
pub(crate) const PATH: &[u8] = b"/proc/locks";

/// Adds the locks on files in mounts to the file that the program has just opened as `fd`. On failure the
/// program sees only the host's.
#[cold]
pub(crate) fn complete(task: &Task, fd: Fd) {
    let _ = proc_file::replace(fd, c"locks", |to| fill(task, fd, to));
}

fn fill(task: &Task, from: Fd, to: Fd) -> Result<()> {
    let own = [task.region.fd(), task.region.life_fd()].map(FileName::of);
    let mut host =
        HostLines { own: &own, to, head: [0; HEAD], length: 0, is_open: false, theirs: 0, last: 0 };
    proc_file::each_piece(from, |bytes| bytes.iter().try_for_each(|byte| host.take(*byte)))?;
    let (mut number, mut done) = (host.last, Ok(()));
    file_lock::each(task, |id, lock| {
        // The kernel leaves out whoever the reader does not see.
        if done.is_ok() && record_lock::shown_pid(task, lock) != 0 {
            number += 1;
            done = line(task, to, number, id, lock);
        }
    });
    done
}

fn line(task: &Task, to: Fd, number: u64, id: InodeId, lock: &Lock) -> Result<()> {
    let mut room = [0u8; 128];
    let mut text = Writer::new(&mut room);
    push(task, &mut text, number, id, lock);
    let length = text.finish().ok_or(Errno::ENOSPC)?;
    proc_file::write(to, &room[..length])
}

/// Bytes of a host's line that are looked at. Only lines of processes that wait, indented by how many wait for
/// each other, are longer; nobody waits for a lock of the gate's own.
const HEAD: usize = 256;

/// Copies the host's lines but those about files of the gate's own, and numbers what is left.
struct HostLines<'o> {
    own: &'o [Option<FileName>],
    to: Fd,
    /// The beginning of a line.
    head: [u8; HEAD],
    length: usize,
    /// Whether the beginning of the line has been written already.
    is_open: bool,
    /// The host's number of the last line that was kept, and the one that it got. Those who wait for a lock
    /// have its number.
    theirs: u64,
    last: u64,
}

impl HostLines<'_> {
    fn take(&mut self, byte: u8) -> Result<()> {
        self.head[self.length] = byte;
        self.length += 1;
        match byte == b'\n' || self.length == HEAD {
            true => self.end(byte != b'\n'),
            false => Ok(()),
        }
    }

    /// Writes what is in `head`; `goes_on` says that the line does not end with it.
    fn end(&mut self, goes_on: bool) -> Result<()> {
        let head = &self.head[..self.length];
        self.length = 0;
        if core::mem::replace(&mut self.is_open, goes_on) {
            return proc_file::write(self.to, head);
        }
        if self.own.iter().flatten().any(|own| own.is_in(head)) {
            return Ok(());
        }
        let digits = head.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let theirs = head[..digits].iter().fold(0, |number, byte| number * 10 + u64::from(byte - b'0'));
        if theirs != self.theirs {
            (self.theirs, self.last) = (theirs, self.last + 1);
        }
        let mut room = [0u8; HEAD + 20];
        let mut text = Writer::new(&mut room);
        text.push_decimal(self.last);
        text.push(&head[digits..]);
        let length = text.finish().ok_or(Errno::ENOSPC)?;
        proc_file::write(self.to, &room[..length])
    }
}

/// How a line names the file, with a blank on each side.
struct FileName {
    text: [u8; 64],
    length: usize,
}

impl FileName {
    /// The name of an open file of the kernel's; `None` if it cannot be asked for.
    fn of(fd: Fd) -> Option<Self> {
        let (device, inode) = identity::of(fd)?;
        let mut text = [0u8; 64];
        let mut writer = Writer::new(&mut text);
        push_file(&mut writer, device, inode);
        let length = writer.finish()?;
        Some(FileName { text, length })
    }

    fn is_in(&self, line: &[u8]) -> bool {
        line.windows(self.length).any(|part| part == &self.text[..self.length])
    }
}

/// Appends a file's device and inode number, with a blank on each side.
fn push_file(text: &mut Writer<'_>, device: u64, inode: u64) {
    let device = stat::split_device(device);
    for (before, part) in [(b" ", device.0), (b":", device.1)] {
        text.push(before);
        text.push_hex(part.into(), (u32::BITS - part.leading_zeros()).div_ceil(4).max(2) as usize);
    }
    text.push(b":");
    text.push_decimal(inode);
    text.push(b" ");
}

/// Like the kernel's lock_get_status.
pub(crate) fn push(task: &Task, text: &mut Writer<'_>, number: u64, id: InodeId, lock: &Lock) {
    text.push_decimal(number);
    text.push(match lock.owner.family {
        family::POSIX => b": POSIX  ADVISORY  ",
        family::OFD => b": OFDLCK ADVISORY  ",
        _ => b": FLOCK  ADVISORY  ",
    });
    text.push(if lock.kind == LockType::Exclusive { b"WRITE " } else { b"READ " });
    match record_lock::shown_pid(task, lock) {
        -1 => text.push(b"-1"),
        pid => text.push_decimal(pid as u64),
    }
    // Relaxed: immutable.
    let device = task.device(task.region.inode(id).root.load(Ordering::Relaxed));
    push_file(text, device, inode::number(task.region, id));
    let is_flock = lock.owner.family == family::FLOCK;
    text.push_decimal(if is_flock { 0 } else { lock.range.start });
    text.push(b" ");
    match lock.range.reaches_the_end() {
        true => text.push(b"EOF"),
        false => text.push_decimal(lock.range.end),
    }
    text.push(b"\n");
}
