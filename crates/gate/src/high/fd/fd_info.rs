//! `/proc/self/fdinfo/N` of a file of ours: position, flags, mount and inode number.
//!
//! The kernel's file describes the placeholder. Once the program has opened it, a memfd with the text as of
//! that moment replaces it.

use lp_abi::linux::{__NR_getpid, O_CLOEXEC};
use lp_abi::text::{Writer, number, parse_decimal};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_vfs::task::Task;
use lp_vfs::{fcntl, mounts};

use crate::high::fd::descriptor;
use crate::high::run::proc_file;

/// The descriptor of this process that a path names, if it is in our table.
fn described(task: &Task, path: &[u8]) -> Option<Fd> {
    let rest = path.strip_prefix(b"/proc/")?;
    let rest = if let Some(rest) = rest.strip_prefix(b"self") {
        rest
    } else {
        let (pid, rest) = parse_decimal(rest)?;
        // SAFETY: getpid(2) takes no arguments.
        let own = unsafe { lp_abi::syscall!(__NR_getpid) }.ok()?;
        (pid as usize == own as usize).then_some(rest)?
    };
    let fd = Fd::new(i32::try_from(number(rest.strip_prefix(b"/fdinfo/")?)?).ok()?);
    descriptor::is_listed(task, fd).then_some(fd)
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
fn fill(task: &Task, fd: Fd, to: Fd) -> Result<()> {
    let cloexec = if fcntl::get_fd(task, fd)? != 0 { O_CLOEXEC } else { 0 };
    let flags = fcntl::get_fl(task, fd)? | cloexec;
    let held = task.fget_any(fd)?;
    let mut room = [0u8; 128];
    let mut text = Writer::new(&mut room);
    text.push(b"pos:\t");
    text.push_decimal(held.file.position.load(Ordering::Relaxed)); // Relaxed: a momentary value.
    text.push(b"\nflags:\t0");
    push_octal(&mut text, flags);
    text.push(b"\nmnt_id:\t");
    text.push_decimal(mounts::shown_id(held.mount()).into());
    text.push(b"\nino:\t");
    text.push_decimal(held.inode_id().0.into());
    text.push(b"\n");
    let length = text.finish().ok_or(Errno::ENOSPC)?;
    proc_file::write(to, &room[..length])
}

fn push_octal(text: &mut Writer<'_>, number: u32) {
    let digits = (u32::BITS - number.leading_zeros()).div_ceil(3).max(1);
    for place in (0..digits).rev() {
        text.push(&[b'0' + (number >> (3 * place) & 7) as u8]);
    }
}
