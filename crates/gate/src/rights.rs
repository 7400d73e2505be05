//! Descriptors of ours on their way over a socket (`SCM_RIGHTS`).
//!
//! What is sent is a *token*: an `O_PATH` descriptor of an empty memfd whose name says which open file of which region is
//! meant. A receiver in the same region puts the open file on the number that the kernel gave; to anybody else the token is
//! a descriptor on which every call fails with `EBADF`. While a token is on its way the open file is marked as being in
//! flight, so that it lives on when the sender closes it.

use lp_abi::linux::{
    __NR_fcntl, __NR_memfd_create, __NR_open, __NR_readlink, F_SETFD, MFD_CLOEXEC, O_CLOEXEC, O_PATH,
};
use lp_abi::{Errno, Result};
use lp_region::FileId;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;
use lp_vfs::{dup, file};

use crate::calls::socket::Message;
use crate::descriptor;
use crate::path::spare_buffer;
use crate::placeholder::close_number;
use crate::text::{Writer, parse_decimal};

/// `SOL_SOCKET` and `SCM_RIGHTS`.
const RIGHTS: [u32; 2] = [1, 1];
/// `MSG_CMSG_CLOEXEC`.
const CMSG_CLOEXEC: u32 = 0x4000_0000;
/// Bytes of `struct cmsghdr`.
const HEADER: usize = 16;
/// Descriptors in one message (`SCM_MAX_FD`).
const MOST: usize = 253;
/// How a token's name begins.
const NAME: &[u8] = b"lightpath-fd:";

/// Tokens that stand in a message in the place of descriptors of ours.
pub struct Tokens {
    numbers: [(i32, u32); MOST],
    count: usize,
}

/// Walks over the control messages in `control`: offset of the data, and its bytes, of those that carry descriptors.
fn rights(control: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        loop {
            let header = control.get(at..at + HEADER)?;
            let word = |from: usize| {
                u32::from_ne_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]])
            };
            let length = word(0) as usize;
            if length < HEADER || word(4) != 0 || length > control.len() - at {
                return None;
            }
            let data = (at + HEADER, length - HEADER);
            at += length.next_multiple_of(8);
            if [word(8), word(12)] == RIGHTS {
                return Some(data);
            }
            if at >= control.len() {
                return None;
            }
        }
    })
}

/// Whether control messages carry a descriptor that is closed to the program.
fn names_hidden(task: &Task, control: &[u8]) -> bool {
    rights(control).any(|(data, bytes)| {
        (data..data + bytes / 4 * 4).step_by(4).any(|at| descriptor::is_hidden(task, number(control, at)))
    })
}

/// [`names_hidden`] for a message of the program's.
pub fn carries_hidden(task: &Task, message: &Message) -> bool {
    let control = spare_buffer();
    let length = message.control_length.min(control.len());
    // SAFETY: the copy routine answers bad pointers; the length fits.
    let copied = message.control != 0
        && unsafe { ucopy::copy(control.as_mut_ptr(), message.control as *const u8, length) }.is_ok();
    copied && names_hidden(task, &control[..length])
}

/// The descriptor at `at`.
fn number(control: &[u8], at: usize) -> i32 {
    i32::from_ne_bytes([control[at], control[at + 1], control[at + 2], control[at + 3]])
}

/// Replaces descriptors of ours in a message by tokens; none if it has none.
///
/// # Errors
/// `EFAULT`; `EBADF` for a descriptor that is closed to the program; those of making a token.
pub fn put_tokens(task: &Task, message: &mut Message) -> Result<Option<Tokens>> {
    let control = spare_buffer();
    let length = message.control_length;
    if message.control == 0 || length < HEADER || length > control.len() {
        return Ok(None);
    }
    // SAFETY: the copy routine answers bad pointers; the length fits.
    unsafe { ucopy::copy(control.as_mut_ptr(), message.control as *const u8, length) }?;
    let control = &mut control[..length];
    if names_hidden(task, control) {
        return Err(Errno::EBADF);
    }
    let mut tokens = Tokens { numbers: [(0, 0); MOST], count: 0 };
    let mut places = [0usize; MOST];
    for (data, bytes) in rights(control) {
        for at in (data..data + bytes / 4 * 4).step_by(4) {
            if tokens.count < MOST && descriptor::is_file(task, number(control, at)) {
                places[tokens.count] = at;
                tokens.count += 1;
            }
        }
    }
    if tokens.count == 0 {
        return Ok(None);
    }
    let wanted = core::mem::replace(&mut tokens.count, 0);
    for at in &places[..wanted] {
        match make(task, number(control, *at)) {
            Ok(token) => {
                control[*at..*at + 4].copy_from_slice(&token.0.to_ne_bytes());
                tokens.numbers[tokens.count] = token;
                tokens.count += 1;
            }
            Err(errno) => {
                tokens.sent(task, false);
                return Err(errno);
            }
        }
    }
    message.control = control.as_ptr() as usize;
    Ok(Some(tokens))
}

/// A token for `fd`, and the open file that it stands for, which is in flight from now on.
fn make(task: &Task, fd: i32) -> Result<(i32, u32)> {
    let held = table::fget(task, fd)?;
    file::share(held.file);
    file::depart(task, held.id);
    let token = make_memfd(task, held.id, held.file.generation.load(Ordering::Relaxed));
    if token.is_err() {
        file::land(task, held.id);
    }
    token.map(|token| (token, held.id.0))
}

fn make_memfd(task: &Task, id: FileId, generation: u32) -> Result<i32> {
    let mut name = [0u8; 96];
    let mut text = Writer::new(&mut name);
    text.push(NAME);
    text.push_hex(task.region.header().identity.load(Ordering::Relaxed), 16); // Relaxed: immutable.
    text.push(b":");
    text.push_decimal(u64::from(id.0));
    text.push(b":");
    text.push_decimal(u64::from(generation));
    text.push(b":");
    text.finish().ok_or(Errno::EINVAL)?;
    // SAFETY: the name is NUL-terminated.
    let memfd = unsafe { lp_abi::syscall!(__NR_memfd_create, name.as_ptr(), MFD_CLOEXEC) }? as i32;
    let path = descriptor_path(memfd);
    // SAFETY: the path is NUL-terminated.
    let token = unsafe { lp_abi::syscall!(__NR_open, path.as_ptr(), O_PATH | O_CLOEXEC) };
    close_number(memfd);
    token.map(|token| token as i32)
}

/// `/proc/self/fd/N`, NUL-terminated.
fn descriptor_path(fd: i32) -> [u8; 32] {
    let mut path = [0u8; 32];
    let mut text = Writer::new(&mut path);
    text.push(b"/proc/self/fd/");
    text.push_decimal(fd as u64);
    let _ = text.finish();
    path
}

impl Tokens {
    /// The message was sent, or was not: the sender's tokens are closed, and in the second case nothing is in flight.
    pub fn sent(&self, task: &Task, sent: bool) {
        for (number, id) in &self.numbers[..self.count] {
            close_number(*number);
            if !sent {
                file::land(task, FileId(*id));
            }
        }
    }
}

/// Puts open files of ours on the numbers of tokens that a message has brought.
pub fn take_tokens(task: &'static Task<'static>, message: &Message, flags: u32) {
    let control = spare_buffer();
    let length = message.control_length;
    if message.control == 0 || length < HEADER || length > control.len() {
        return;
    }
    // SAFETY: the copy routine answers bad pointers; the length fits.
    if unsafe { ucopy::copy(control.as_mut_ptr(), message.control as *const u8, length) }.is_err() {
        return;
    }
    for (data, bytes) in rights(&control[..length]) {
        for at in (data..data + bytes / 4 * 4).step_by(4) {
            let fd = number(control, at);
            if let Some(id) = meant(task, fd) {
                install(task, fd, id, flags);
            }
        }
    }
}

/// The open file that a received descriptor stands for, if it is a token of this region's.
fn meant(task: &Task, fd: i32) -> Option<FileId> {
    let mut text = [0u8; 128];
    let path = descriptor_path(fd);
    // SAFETY: the path is NUL-terminated, the kernel writes within `text`.
    let got =
        unsafe { lp_abi::syscall!(__NR_readlink, path.as_ptr(), text.as_mut_ptr(), text.len()) }.ok()?;
    let rest = text[..got].strip_prefix(b"/memfd:")?.strip_prefix(NAME)?;
    let mut identity = [0u8; 20];
    let mut own = Writer::new(&mut identity);
    own.push_hex(task.region.header().identity.load(Ordering::Relaxed), 16); // Relaxed: immutable.
    own.push(b":");
    let length = own.finish()?;
    let (id, rest) = parse_decimal(rest.strip_prefix(&identity[..length])?)?;
    let (generation, _) = parse_decimal(rest.strip_prefix(b":")?)?;
    let file = task.region.file(FileId(id));
    let lives = file.in_flight.load(Ordering::Acquire) != 0;
    (lives && file.generation.load(Ordering::Relaxed) == generation).then_some(FileId(id))
}

fn install(task: &'static Task<'static>, fd: i32, id: FileId, flags: u32) {
    // The kernel's mark must not close what is ours to close.
    // SAFETY: the descriptor was just received.
    let _ = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_SETFD, 0) };
    let cloexec = if flags & CMSG_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    if dup::receive(task, fd, id, cloexec).is_ok() {
        file::land(task, id);
    }
}
