//! Descriptors of ours in transit over a socket (`SCM_RIGHTS`).
//!
//! What is sent is a *token* ([`lp_vfs::flight`]): an open file description of the run's flights, an empty,
//! sealed memfd. It is opened for writing only, and its position identifies the open file of ours. A receiver
//! in the same region puts that open file on the number that the kernel gave. To any other receiver the token
//! is a descriptor on which reads and writes fail. The open file lives while tokens for it exist, even if the
//! sender closes it and nobody receives the message. pidfd_getfd(2) takes no token: what the other process
//! has open is found in its table.

use lp_abi::linux::{__NR_lseek, __NR_open, __NR_readlink, O_CLOEXEC, O_WRONLY, SEEK_CUR, SEEK_SET};
use lp_abi::{Errno, Fd, Result};
use lp_region::layout::FILES;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_region::{FileId, RunId};
use lp_vfs::below::opened;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;
use lp_vfs::{dup, flight, pin};

use crate::high::fd::{descriptor, fd_info, own_descriptor, placeholder};
use crate::high::frame::message::Message;
use crate::high::frame::room::Room;
use crate::low::tools::close::close_number;
use lp_abi::text::{Writer, parse_decimal};

/// `SOL_SOCKET` and `SCM_RIGHTS`.
const RIGHTS: [u32; 2] = [1, 1];
/// `MSG_CMSG_CLOEXEC`.
const CMSG_CLOEXEC: u32 = 0x4000_0000;
/// Size of `struct cmsghdr`.
const HEADER: usize = 16;
/// Maximum number of descriptors in one message (`SCM_MAX_FD`).
const MOST: usize = 253;
/// Prefix of the name of a run's flights; the region's identity and the run follow.
const NAME: &[u8] = b"/memfd:lightpath-flights:";

/// Most bytes of control messages that are looked at; the kernel's default for `net.core.optmem_max` is less.
const MOST_CONTROL: usize = 1 << 20;

/// Tokens that replace descriptors of ours in a message.
pub(crate) struct Tokens {
    numbers: [Fd; MOST],
    count: usize,
    /// The message's control messages.
    control: Control,
}

/// A copy of a message's control messages.
struct Control {
    room: Room,
    length: usize,
}

impl Control {
    /// `None` if the message has none.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`.
    fn of(message: &Message) -> Result<Option<Control>> {
        let length = message.control_length;
        if message.control == 0 || !(HEADER..=MOST_CONTROL).contains(&length) {
            return Ok(None);
        }
        let room = Room::new(length)?;
        // SAFETY: the copy routine handles bad pointers; the length fits.
        unsafe { ucopy::copy(room.start(), message.control as *const u8, length) }?;
        Ok(Some(Control { room, length }))
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory holds so many bytes.
        unsafe { core::slice::from_raw_parts_mut(self.room.start(), self.length) }
    }
}

/// Offset and length of the data of each control message in `control` that carries descriptors.
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

/// Whether a descriptor in the control messages satisfies `kind`.
fn carries(control: &[u8], kind: impl Fn(Fd) -> bool) -> bool {
    let mut data = rights(control);
    data.any(|(data, bytes)| (data..data + bytes / 4 * 4).step_by(4).any(|at| kind(number(control, at))))
}

/// The descriptor at `at`.
fn number(control: &[u8], at: usize) -> Fd {
    Fd::new(i32::from_ne_bytes([control[at], control[at + 1], control[at + 2], control[at + 3]]))
}

/// Whether a message carries descriptors of ours, or some that look closed to the program.
pub(crate) fn carries_ours(task: &Task, message: &Message) -> bool {
    let is_meant = |fd| descriptor::is_file(task, fd) || descriptor::is_hidden(task, fd);
    Control::of(message).ok().flatten().is_some_and(|mut control| carries(control.bytes(), is_meant))
}

/// Replaces descriptors of ours in a message by tokens; `None` if it has none.
///
/// # Errors
/// `EFAULT`; `EBADF` for a descriptor that looks closed to the program; those of creating a token.
pub(crate) fn put_tokens(task: &Task, message: &mut Message) -> Result<Option<Tokens>> {
    let Some(mut copy) = Control::of(message)? else { return Ok(None) };
    let control = copy.bytes();
    if carries(control, |fd| descriptor::is_hidden(task, fd)) {
        return Err(Errno::EBADF);
    }
    let (mut wanted, mut places) = (0, [0usize; MOST]);
    for (data, bytes) in rights(control) {
        for at in (data..data + bytes / 4 * 4).step_by(4) {
            if wanted < MOST && descriptor::is_file(task, number(control, at)) {
                places[wanted] = at;
                wanted += 1;
            }
        }
    }
    if wanted == 0 {
        return Ok(None);
    }
    let mut tokens = Tokens { numbers: [Fd::NONE; MOST], count: 0, control: copy };
    for at in &places[..wanted] {
        let control = tokens.control.bytes();
        match make(task, number(control, *at)) {
            Ok(token) => {
                control[*at..*at + 4].copy_from_slice(&token.raw().to_ne_bytes());
                tokens.numbers[tokens.count] = token;
                tokens.count += 1;
            }
            Err(errno) => {
                tokens.close();
                return Err(errno);
            }
        }
    }
    message.control = tokens.control.room.start() as usize;
    Ok(Some(tokens))
}

/// Creates a token for `fd`.
fn make(task: &Task, fd: Fd) -> Result<Fd> {
    let held = dup::share(task, fd)?;
    opened::complete_file(task, &held);
    let generation = held.file.generation.load(Ordering::Relaxed); // Relaxed: immutable while held.
    make_token(task, held.id, generation)
}

/// Creates a token for an open file, which the caller must hold.
fn make_token(task: &Task, id: FileId, generation: u32) -> Result<Fd> {
    let path = flight::descriptor(task).ok_or(Errno::EBADF)?.link();
    // SAFETY: the path is NUL-terminated.
    let token = unsafe { lp_abi::syscall!(__NR_open, path.as_ptr(), O_WRONLY | O_CLOEXEC) }?;
    let token = Fd::new(token as i32);
    let place = u64::from(generation) * FILES as u64 + u64::from(id.0);
    // SAFETY: lseek(2) takes no pointers.
    let done = unsafe { lp_abi::syscall!(__NR_lseek, token, place, SEEK_SET) }
        .and_then(|_| flight::launch(task, id, token));
    if let Err(errno) = done {
        close_number(token);
        return Err(errno);
    }
    Ok(token)
}

impl Tokens {
    /// Closes the sender's own references, whether or not the message was sent.
    pub(crate) fn close(&self) {
        for number in &self.numbers[..self.count] {
            close_number(*number);
        }
    }
}

/// Puts open files of ours on the numbers of tokens that a message has brought.
pub(crate) fn take_tokens(task: &'static Task<'static>, message: &Message, flags: u32) {
    let Ok(Some(mut copy)) = Control::of(message) else { return };
    let control = copy.bytes();
    for (data, bytes) in rights(control) {
        for at in (data..data + bytes / 4 * 4).step_by(4) {
            let fd = number(control, at);
            if let Some(meant) = meant(task, fd) {
                let _ = receive(task, fd, &meant, flags);
            }
        }
    }
}

/// The open file that a token denotes.
struct Meant {
    id: FileId,
    generation: u32,
    /// The run from which it comes.
    run: RunId,
}

/// The open file that a received descriptor denotes, if it is a token of this region.
fn meant(task: &Task, fd: Fd) -> Option<Meant> {
    let mut text = [0u8; 128];
    let path = fd.link();
    // SAFETY: the path is NUL-terminated, and the kernel writes within `text`.
    let got =
        unsafe { lp_abi::syscall!(__NR_readlink, path.as_ptr(), text.as_mut_ptr(), text.len()) }.ok()?;
    let rest = text[..got].strip_prefix(NAME)?;
    let mut identity = [0u8; 20];
    let mut own = Writer::new(&mut identity);
    own.push_hex(task.region.header().identity.load(Ordering::Relaxed), 16); // Relaxed: immutable.
    own.push(b":");
    let length = own.finish()?;
    let (run, _) = parse_decimal(rest.strip_prefix(&identity[..length])?)?;
    // SAFETY: lseek(2) takes no pointers.
    let place = unsafe { lp_abi::syscall!(__NR_lseek, fd, 0, SEEK_CUR) }.ok()?;
    Some(Meant { id: FileId((place % FILES) as u32), generation: (place / FILES) as u32, run: RunId(run) })
}

/// Puts the open file on the number of its token. The token, or one of this run's own, exists until that is
/// done, so the open file cannot become another meanwhile.
fn receive(task: &'static Task<'static>, fd: Fd, meant: &Meant, flags: u32) -> Result<()> {
    // Relaxed: immutable while claimed.
    let foreign = meant.run.0 != task.process.run.load(Ordering::Relaxed);
    let bridge = foreign.then(|| make_token(task, meant.id, meant.generation)).transpose()?;
    let file = task.region.file(meant.id);
    let lives = file.generation.load(Ordering::Acquire) == meant.generation
        && (!foreign || task.region.run_is_held(meant.run));
    let done = if lives { install(task, fd, meant.id, flags) } else { Err(Errno::EBADF) };
    if let Some(bridge) = bridge {
        close_number(bridge);
    }
    done
}

/// pidfd_getfd(2) has made `fd` a copy of descriptor `number` of the process behind `pidfd`. If that names an
/// open file of ours, puts it there.
///
/// # Errors
/// `EBADF` if the descriptor is closed; those of dup2(2).
#[cold]
pub(crate) fn fetched(task: &'static Task<'static>, fd: Fd, pidfd: Fd, number: Fd) -> Result<()> {
    let Some(pid) = own_descriptor::process_behind(pidfd) else { return Ok(()) };
    let Some(process) = fd_info::process_of(task, pid) else { return Ok(()) };
    let Some((id, kind)) = dup::of_process(task, process, number)? else {
        // It was closed since the kernel's copy.
        return if placeholder::is_copy(fd) { Err(Errno::EBADF) } else { Ok(()) };
    };
    if kind == entry::HOST {
        // The kernel's copy is of the object behind an inode of ours.
        return dup::install(task, fd, id, entry::HOST | entry::CLOEXEC).inspect(|()| dup::received(task));
    }
    install(task, fd, id, CMSG_CLOEXEC).inspect_err(|_| dup::abandon(task))?;
    opened::complete_file(task, &task.fget(fd)?);
    Ok(())
}

fn install(task: &'static Task<'static>, fd: Fd, id: FileId, flags: u32) -> Result<()> {
    let cloexec = if flags & CMSG_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    pin::file(task, pin::slot::OPEN, id);
    let replaced = placeholder::replace(task, fd, entry::naming(id, cloexec));
    dup::received(task);
    table::let_go(task, replaced?);
    Ok(())
}
