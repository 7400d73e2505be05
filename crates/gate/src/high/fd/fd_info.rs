//! `/proc/PID/fdinfo/N` of a file of ours, in any process of the run: position, flags, mount and inode
//! number.
//!
//! The kernel's file describes the placeholder. Once the program has opened it, a memfd with the text as of
//! that moment replaces it.

use lp_abi::linux::{__NR_getpid, O_CLOEXEC};
use lp_abi::text::{Writer, number, parse_decimal};
use lp_abi::{Errno, Fd, Result};
use lp_region::life::SlotState;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef, ProcessId};
use lp_vfs::table::{FdTable, entry};
use lp_vfs::task::Task;
use lp_vfs::{inode, mounts};

use crate::high::run::proc_file;

/// The process of the run that has this id in the caller's eyes.
pub(crate) fn process_of(task: &Task, pid: u32) -> Option<ProcessId> {
    task.region.processes().find(|id| {
        let process = task.region.process(*id);
        // Relaxed: constant while the process lives.
        process.pid.load(Ordering::Relaxed) == pid && process.life.get().state() == SlotState::Live
    })
}

/// The process and its descriptor that a path describes.
fn described(task: &Task, path: &[u8]) -> Option<(ProcessId, Fd)> {
    let rest = path.strip_prefix(b"/proc/")?;
    let own = [&b"self"[..], b"thread-self"].into_iter().find_map(|own| rest.strip_prefix(own));
    let (process, rest) = if let Some(rest) = own {
        (task.process_id, rest)
    } else {
        let (pid, rest) = parse_decimal(rest)?;
        // SAFETY: getpid(2) takes no arguments.
        let own = unsafe { lp_abi::syscall!(__NR_getpid) }.ok()?;
        let is_own = pid as usize == own as usize;
        (if is_own { task.process_id } else { process_of(task, pid)? }, rest)
    };
    let fd = Fd::new(i32::try_from(number(rest.strip_prefix(b"/fdinfo/")?)?).ok()?);
    Some((process, fd))
}

/// Replaces what the program has just opened as `fd`, by `path`, if it describes a file of ours. On failure
/// the program sees the kernel's.
#[cold]
pub(crate) fn complete(task: &Task, fd: Fd, path: &[u8]) {
    if let Some(about) = described(task, path) {
        let _ = proc_file::replace(fd, c"fdinfo", |to| fill(task, about, to));
    }
}

/// Like the kernel's seq_show of fdinfo.
fn fill(task: &Task, (process, fd): (ProcessId, Fd), to: Fd) -> Result<()> {
    let place = FdTable::of(task.region, process).entry(fd).ok_or(Errno::EBADF)?;
    let word = place.load(Ordering::Acquire);
    if word & entry::OPEN == 0 {
        return Err(Errno::EBADF);
    }
    let file = task.region.file(FileId(word as u32));
    // Relaxed, below too: momentary values, of this file unless the entry changes.
    let cloexec = if word & entry::CLOEXEC != 0 { O_CLOEXEC } else { 0 };
    let of = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
    let mut room = [0u8; 128];
    let mut text = Writer::new(&mut room);
    text.push(b"pos:\t");
    text.push_decimal(file.position.load(Ordering::Relaxed));
    text.push(b"\nflags:\t0");
    push_octal(&mut text, file.flags.load(Ordering::Relaxed) | cloexec);
    text.push(b"\nmnt_id:\t");
    text.push_decimal(mounts::shown_id(file.mount()).into());
    text.push(b"\nino:\t");
    text.push_decimal(inode::number(task.region, of.id));
    text.push(b"\n");
    let length = text.finish().ok_or(Errno::ENOSPC)?;
    if place.load(Ordering::Acquire) != word {
        return Err(Errno::EBADF);
    }
    proc_file::write(to, &room[..length])
}

fn push_octal(text: &mut Writer<'_>, number: u32) {
    let digits = (u32::BITS - number.leading_zeros()).div_ceil(3).max(1);
    for place in (0..digits).rev() {
        text.push(&[b'0' + (number >> (3 * place) & 7) as u8]);
    }
}
