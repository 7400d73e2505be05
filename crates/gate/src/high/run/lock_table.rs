//! `/proc/locks`: the host's lines, and those of the locks on files in mounts.
//!
//! The file that the program has opened is read to its end and replaced by a memfd with the complete text as
//! of that moment.

use lp_abi::text::Writer;
use lp_abi::{Errno, Fd, Result};
use lp_region::InodeId;
use lp_region::sync::Ordering;
use lp_vfs::lock::{Lock, LockType, family};
use lp_vfs::task::Task;
use lp_vfs::{file_lock, inode, record_lock, stat};

use crate::high::run::proc_file;

/// Where it is.
pub(crate) const PATH: &[u8] = b"/proc/locks";

/// Adds the locks on files in mounts to the file that the program has just opened as `fd`. On failure the
/// program sees only the host's.
#[cold]
pub(crate) fn complete(task: &Task, fd: Fd) {
    let _ = proc_file::replace(fd, c"locks", |to| fill(task, fd, to));
}

fn fill(task: &Task, from: Fd, to: Fd) -> Result<()> {
    let mut numbers = Numbers { last: 0, parsed: Some(0) };
    proc_file::each_piece(from, |bytes| {
        bytes.iter().for_each(|byte| numbers.take(*byte));
        proc_file::write(to, bytes)
    })?;
    let (mut number, mut done) = (numbers.last, Ok(()));
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

/// Parses the numbers at the beginning of the host's lines.
struct Numbers {
    last: u64,
    /// The number so far; `None` behind it.
    parsed: Option<u64>,
}

impl Numbers {
    fn take(&mut self, byte: u8) {
        self.parsed = match (byte, self.parsed) {
            (b'\n', _) => Some(0),
            (b'0'..=b'9', Some(number)) => Some(number * 10 + u64::from(byte - b'0')),
            (_, Some(number)) => {
                self.last = number;
                None
            }
            (_, None) => None,
        };
    }
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
    let device = stat::split_device(task.device(task.region.inode(id).root.load(Ordering::Relaxed)));
    for (before, part) in [(b" ", device.0), (b":", device.1)] {
        text.push(before);
        text.push_hex(part.into(), (u32::BITS - part.leading_zeros()).div_ceil(4).max(2) as usize);
    }
    text.push(b":");
    text.push_decimal(inode::number(task.region, id));
    text.push(b" ");
    let is_flock = lock.owner.family == family::FLOCK;
    text.push_decimal(if is_flock { 0 } else { lock.range.start });
    text.push(b" ");
    match lock.range.reaches_the_end() {
        true => text.push(b"EOF"),
        false => text.push_decimal(lock.range.end),
    }
    text.push(b"\n");
}
