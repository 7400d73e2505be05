//! The run's shelf: copies of programs in mounts, kept for the next exec of the same file.
//!
//! The kernel executes whole files, so a program of ours is copied into a memfd, and fresh memory makes that
//! copy dear ([`super::image`]). The shelf keeps copies without a process that would have to live for it: it
//! is a datagram socket that is connected to itself and that every process of the run inherits, at the number
//! behind the flights'. One message in its queue carries the descriptors of the copies (`SCM_RIGHTS`) and
//! what each is a copy of. To look, a process peeks at the message, which duplicates the descriptors. To add
//! a copy, it takes the message and sends another. If it dies in between, or another process does the same
//! meanwhile, copies are lost, which costs time and nothing else. The kernel frees all of it with the run's
//! last process.

use core::mem::MaybeUninit;

use lp_abi::fnv::fnv1a;
use lp_abi::linux::{__NR_close, __NR_recvmsg, __NR_sendmsg};
use lp_abi::{Fd, Result};
use lp_vfs::flight;
use lp_vfs::task::Task;
use lp_vfs::version::Version;

use crate::high::frame::message::Message;

/// Copies on the shelf.
const MOST: usize = 8;
/// Bytes of all copies on the shelf.
const BYTES: u64 = 256 << 20;
/// Messages that one addition takes: several exist only after processes added copies at the same time.
const MESSAGES: usize = 4;

/// `SOL_SOCKET` and `SCM_RIGHTS`.
const RIGHTS: [u32; 2] = [1, 1];
const MSG_PEEK: usize = 2;
const MSG_DONTWAIT: usize = 0x40;
const MSG_CMSG_CLOEXEC: usize = 0x4000_0000;

/// What a memfd is a copy of.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    version: [u64; 4],
    /// Hash of the memfd's name, by which the program finds itself, and of what is changed in the copy.
    name: u64,
}

impl Label {
    /// The label of a copy of that version in a memfd; `parts` are its name and the change.
    pub(crate) fn new(version: Version, parts: &[&[u8]]) -> Self {
        Label { version: version.to_words(), name: fnv1a(parts.iter().copied().flatten()) }
    }

    fn version(&self) -> Version {
        Version::from_words(self.version)
    }
}

/// Control message with descriptors.
#[repr(C)]
struct Control {
    length: usize,
    what: [u32; 2],
    fds: [Fd; MOST],
}

/// Bytes of a control message before its descriptors (`struct cmsghdr`).
const HEADER: usize = 16;

/// The content of a message.
struct Copies {
    labels: [Label; MOST],
    fds: [Fd; MOST],
    count: usize,
}

impl Copies {
    fn new() -> Self {
        let none = Label { version: [0; 4], name: 0 };
        Copies { labels: [none; MOST], fds: [Fd::NONE; MOST], count: 0 }
    }

    fn all(&self) -> impl Iterator<Item = (Label, Fd)> {
        self.labels.iter().copied().zip(self.fds.iter().copied()).take(self.count)
    }

    /// Adds a copy unless there is one of the same file, or no room.
    fn add(&mut self, label: Label, fd: Fd) -> bool {
        let bytes: u64 = self.all().map(|(label, _)| label.version().bytes()).sum();
        let is_there = self.all().any(|(other, _)| other.version().file() == label.version().file());
        if is_there || self.count == MOST || bytes.saturating_add(label.version().bytes()) > BYTES {
            return false;
        }
        (self.labels[self.count], self.fds[self.count]) = (label, fd);
        self.count += 1;
        true
    }

    fn send(&mut self, socket: Fd) -> Result<usize> {
        let length = HEADER + self.count * size_of::<Fd>();
        let control = Control { length, what: RIGHTS, fds: self.fds };
        let vector = [self.labels.as_ptr() as usize, self.count * size_of::<Label>()];
        let message = message(&vector, (&raw const control as usize, length));
        // SAFETY: the kernel reads what the message names, all of it alive here.
        unsafe { lp_abi::syscall!(__NR_sendmsg, socket, &raw const message, MSG_DONTWAIT) }
    }

    /// Takes a message, or with `MSG_PEEK` looks at it. The descriptors are the caller's to close.
    fn receive(socket: Fd, flags: usize) -> Result<Self> {
        let mut copies = Copies::new();
        let mut control = MaybeUninit::<Control>::zeroed();
        let vector = [copies.labels.as_mut_ptr() as usize, size_of_val(&copies.labels)];
        let mut message = message(&vector, (control.as_mut_ptr() as usize, size_of::<Control>()));
        let flags = flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC;
        // SAFETY: the kernel writes to what the message names, all of it alive here and large enough.
        let bytes = unsafe { lp_abi::syscall!(__NR_recvmsg, socket, &raw mut message, flags) }?;
        // SAFETY: zeros, and whatever the kernel writes, are a valid record of integers.
        let control = unsafe { control.assume_init() };
        let got = match control.what == RIGHTS && message.control_length >= HEADER {
            true => control.length.saturating_sub(HEADER) / size_of::<Fd>(),
            false => 0,
        };
        copies.fds = control.fds;
        // Fewer descriptors than labels arrive where the process has no more numbers.
        copies.count = got.min(bytes / size_of::<Label>()).min(MOST);
        control.fds.iter().take(got).skip(copies.count).for_each(|fd| close(*fd));
        Ok(copies)
    }
}

fn message(vector: &[usize; 2], (control, control_length): (usize, usize)) -> Message {
    Message {
        name: 0,
        name_length: 0,
        vector: vector.as_ptr() as usize,
        vector_length: 1,
        control,
        control_length,
        flags: 0,
    }
}

fn close(fd: Fd) {
    // SAFETY: the descriptor came with a message, and nothing else uses it.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
}

/// The shelf's socket; none in a process that has restricted itself, which makes no calls of its own.
fn socket(task: &Task) -> Option<Fd> {
    if lp_abi::sys::is_limited() { None } else { flight::descriptor(task).map(Fd::next) }
}

/// A descriptor of a copy with that label, if there is one on the shelf.
pub(crate) fn find(task: &Task, label: Label) -> Option<Fd> {
    let copies = Copies::receive(socket(task)?, MSG_PEEK).ok()?;
    let mut found = None;
    for (other, fd) in copies.all() {
        if found.is_none() && other == label { found = Some(fd) } else { close(fd) }
    }
    found
}

/// Puts a copy on the shelf, in the place of an older one of the same file. The newest copies stay.
pub(crate) fn keep(task: &Task, label: Label, fd: Fd) {
    let Some(socket) = socket(task) else { return };
    let mut kept = Copies::new();
    if !kept.add(label, fd) {
        return;
    }
    for _ in 0..MESSAGES {
        let Ok(older) = Copies::receive(socket, 0) else { break };
        older.all().filter(|(label, fd)| !kept.add(*label, *fd)).for_each(|(_, fd)| close(fd));
    }
    // A shelf that takes nothing is empty.
    let _ = kept.send(socket);
    kept.all().skip(1).for_each(|(_, fd)| close(fd));
}
