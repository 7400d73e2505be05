//! Runs the builder of site images for objects that the bundle does not know, and when the gate's own files
//! are gone.

use core::ffi::CStr;

use lp_abi::image::{NONE_NEEDED, OTHER_VERSION};
use lp_abi::linux::{__NR_clone, __NR_execve, __NR_exit_group, __NR_fcntl, __NR_wait4, F_SETFD};
use lp_abi::{Fd, OwnedFd};

use crate::High;
use crate::low::above::Above;
use crate::low::thread::{current, home};
use crate::low::tools::{names, report};

/// Maximum number of objects that the builder is given at once.
pub(crate) const BATCH: usize = 256;

/// What the builder was given, and found.
pub(crate) struct Built {
    /// The number of names: at least one, and as many as there is room for.
    pub(crate) given: usize,
    pub(crate) ended: Ended,
}

/// How the builder ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has written images, or said why it did not.
    Itself,
    /// It could not write the bundle, and none of the objects needs an image.
    NoneNeeded,
    /// It is of another version than the gate.
    OtherVersion,
    /// It could not be executed.
    NotExecuted,
}

/// Ends the process because the builder has left the object with this name without an image.
#[cold]
pub(crate) fn refuse(name: &[u8], ended: Ended) -> ! {
    let why: &[u8] = match ended {
        Ended::Itself | Ended::NoneNeeded => report::refuse(&[b"no site image for ", name]),
        Ended::OtherVersion => b" has been replaced by another version; start the run again",
        Ended::NotExecuted => b" cannot be executed any more; start the run again",
    };
    report::refuse(&[b"no site image for ", name, b": ", home::settings().builder.get(), why])
}

/// An object for the builder.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// By its path; the empty one is the program's.
    Path(&'a [u8]),
    /// By a descriptor, which the builder inherits: /proc/PID/fd of a process that has changed users is closed
    /// to its user. At most one at a time, and not beside the program.
    Open(Fd),
}

/// Runs the builder for these objects and waits for it.
#[cold]
#[inline(never)]
pub(crate) fn build<'a>(sources: impl Iterator<Item = Source<'a>>) -> Built {
    const PATHS: usize = 16 << 10;
    let settings = home::settings();
    let (mut used, mut given) = (0, 0);
    let mut paths = [0u8; PATHS];
    let mut argv = [core::ptr::null::<u8>(); BATCH + 6];
    let fixed = [
        settings.builder.pointer(),
        c"sites".as_ptr().cast(),
        c"--bundle".as_ptr().cast(),
        settings.bundle.pointer(),
        c"--build".as_ptr().cast(),
    ];
    argv[..fixed.len()].copy_from_slice(&fixed);
    let (mut copy, mut open) = (None, None);
    for source in sources.take(BATCH) {
        let mut own = [0; names::ROOM];
        let link;
        if let Source::Path(b"") = source {
            // SAFETY: in the gate `current` is set.
            copy = High::copy_of_program(unsafe { &*current::thread() });
            open = copy.as_ref().map(OwnedFd::get);
        }
        let path = match (source, open) {
            (Source::Open(fd), _) | (Source::Path(b""), Some(fd)) => {
                open = Some(fd);
                link = fd.link();
                CStr::from_bytes_until_nul(&link).unwrap_or_default().to_bytes()
            }
            (Source::Path(b""), None) => names::of_program(&mut own),
            (Source::Path(path), _) => path,
        };
        let Some(length) = store(&mut paths[used..], path) else {
            if given == 0 {
                report::refuse(&[b"path too long: ", names::shown(path, &mut [0; names::ROOM])]);
            }
            break;
        };
        argv[fixed.len() + given] = paths[used..].as_ptr();
        used += length + 1;
        given += 1;
    }
    let status = match settings.builder.get().is_empty() {
        true => FAILED,
        false => run(settings.builder.pointer(), &argv, open),
    };
    drop(copy);
    let ended = match status {
        NONE_NEEDED => Ended::NoneNeeded,
        OTHER_VERSION => Ended::OtherVersion,
        NOT_EXECUTED => Ended::NotExecuted,
        _ => Ended::Itself,
    };
    Built { given, ended }
}

/// Has the builder write the gate and what lies with it again, because a program has removed the cache
/// directory, or because this root directory lacks it. The caller looks whether they are there.
#[cold]
#[inline(never)]
pub(crate) fn restore() {
    let settings = home::settings();
    if settings.builder.get().is_empty() {
        return;
    }
    let argv = [
        settings.builder.pointer(),
        c"sites".as_ptr().cast(),
        c"--restore".as_ptr().cast(),
        settings.preload.pointer(),
        core::ptr::null(),
    ];
    run(settings.builder.pointer(), &argv, None);
}

/// Exit status of a builder that was not executed.
const NOT_EXECUTED: usize = 127;
/// Exit status of one that was killed, or for which there was no process.
const FAILED: usize = 128;

/// Runs a program that inherits `open`, waits for its end and returns its exit status. `argv` ends with null.
fn run(path: *const u8, argv: &[*const u8], open: Option<Fd>) -> usize {
    // Fork without an exit signal, so that the program does not see the child. execve(2) resets the signal to
    // SIGCHLD, so the builder is a grandchild, and the child between does not exec.
    match fork_silently() {
        Ok(0) => {}
        Ok(between) => return wait_for(between),
        Err(_) => return FAILED,
    }
    match fork_silently() {
        Ok(0) => {}
        Ok(builder) => {
            exit(wait_for(builder));
        }
        Err(_) => exit(FAILED),
    }
    if let Some(fd) = open {
        // SAFETY: fcntl(2) takes no pointer here. The table is this child's own.
        let _ = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_SETFD, 0) };
    }
    let environment = [core::ptr::null::<u8>(); 1];
    // SAFETY: the path and the arguments are NUL-terminated, and both vectors end with null.
    let _ = unsafe { lp_abi::syscall!(__NR_execve, path, argv.as_ptr(), environment.as_ptr()) };
    exit(NOT_EXECUTED)
}

/// Forks without an exit signal.
fn fork_silently() -> lp_abi::Result<usize> {
    // SAFETY: a plain fork: the child gets a copy of all memory.
    unsafe { lp_abi::syscall!(__NR_clone, 0, 0, 0, 0, 0) }
}

/// Waits for the end of a child of [`fork_silently`] and returns its exit status.
fn wait_for(child: usize) -> usize {
    const WALL: u32 = lp_abi::linux::__WALL;
    let mut status = 0u32;
    let at = &raw mut status;
    // SAFETY: waits for this process's own child; the kernel writes one word.
    while unsafe { lp_abi::syscall!(__NR_wait4, child, at, WALL, 0) } == Err(lp_abi::Errno::EINTR) {}
    // WIFEXITED, WEXITSTATUS.
    if status & 0x7f == 0 { (status >> 8 & 0xff) as usize } else { FAILED }
}

/// Ends a child of [`fork_silently`].
fn exit(status: usize) -> ! {
    loop {
        // SAFETY: exit_group(2) takes no pointers; it ends the child only.
        let _ = unsafe { lp_abi::syscall!(__NR_exit_group, status) };
    }
}

fn store(room: &mut [u8], text: &[u8]) -> Option<usize> {
    let room = room.get_mut(..text.len() + 1)?;
    room[..text.len()].copy_from_slice(text);
    room[text.len()] = 0;
    Some(text.len())
}
