//! fsopen(2), fsconfig(2), fsmount(2), fspick(2). The contexts, and the file systems that come of them, are
//! the kernel's until move_mount(2) puts one into a mount ([`made`]). A context for a file system of ours is
//! one of the kernel's for a new tmpfs, which checks the options ([`picked`]).

use lp_abi::linux::{
    __NR_fcntl, __NR_fsconfig, __NR_fsmount, __NR_fsopen, __NR_fspick, F_GETFD, FSPICK_CLOEXEC,
    FSPICK_SYMLINK_NOFOLLOW, fsconfig_command,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::mount::SOURCE;
use lp_region::ucopy;
use lp_vfs::fspick::{self, Picked};
use lp_vfs::task::{Place, Task};

use crate::high::calls::refused::{concerns, mentions_mount};
use crate::high::fd::stand_in::{self, stand_in_returns};
use crate::high::fd::{descriptor, made, picked, placeholder};
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{failed_with, handlers, kernel, ret};
use crate::high::route::path::one;
use crate::low::dispatch::NOT_OURS;

/// The command of an option without a value.
const FLAG: u32 = fsconfig_command::FSCONFIG_SET_FLAG as u32;
/// The commands whose value is a string or a path.
const TEXT: [u32; 3] = [
    fsconfig_command::FSCONFIG_SET_STRING as u32,
    fsconfig_command::FSCONFIG_SET_PATH as u32,
    fsconfig_command::FSCONFIG_SET_PATH_EMPTY as u32,
];

handlers! {
    /// fsopen(2).
    fn fsopen(task, name: UserPtr, flags: u32) {
        placeholder::flush(task);
        let done = kernel!(__NR_fsopen, name, flags);
        if done >= 0 {
            made::begun(Fd::new(done as i32), is_text(name, b"tmpfs"));
            picked::begun(Fd::new(done as i32), None);
        }
        done
    }

    /// fspick(2).
    fn fspick(task, dirfd: Fd, path: UserPtr, flags: u32) {
        placeholder::flush(task);
        let made = |done: isize, picked: Option<Picked>| {
            if done >= 0 {
                made::begun(Fd::new(done as i32), false);
                picked::begun(Fd::new(done as i32), picked);
            }
            done
        };
        let ours = |at: At| match fspick::pick(task, (at.dirfd, at.path), flags)? {
            Place::Outside(outside) => Ok(Place::Outside(outside)),
            Place::Inside(picked) => {
                let done = kernel!(__NR_fsopen, c"tmpfs".as_ptr(), flags & FSPICK_CLOEXEC);
                Ok(Place::Inside(made(done, Some(picked))))
            }
        };
        let host = |at: At| made(kernel!(__NR_fspick, at.dirfd, at.path, flags), None);
        let last = if flags & FSPICK_SYMLINK_NOFOLLOW != 0 { Last::Link } else { Last::Follow };
        one(task, At { dirfd, path }, last, ours, host)
    }

    /// fsconfig(2): a value may be a path, or contain paths.
    fn fsconfig(task, fd: Fd, command: u32, key: UserPtr, value: UserPtr, extra: Fd) {
        stand_in_returns!(task, fd, __NR_fsconfig, command, key, value, extra);
        if picked::is_one(fd) {
            return change(task, fd, (command, key, value, extra));
        }
        if (command == FLAG || command == TEXT[0]) && made::is_context(fd) {
            let done = kernel!(__NR_fsconfig, fd, command, key, value, extra);
            if done >= 0 {
                note(fd, key, value);
            }
            return done;
        }
        let names_ours = TEXT.contains(&command)
            && (concerns(task, At { dirfd: extra, path: value }) || mentions_mount(value));
        let is_fd = command == fsconfig_command::FSCONFIG_SET_FD as u32;
        if names_ours || is_fd && descriptor::is_listed(task, extra) {
            let closed = if fd.raw() < 0 { fd } else { stand_in::CLOSED };
            let first = kernel!(__NR_fsconfig, closed, command, key, value, extra);
            let is_closed = descriptor::is_hidden(task, fd) || kernel!(__NR_fcntl, fd, F_GETFD) < 0;
            return if first != Errno::EBADF.to_ret() || is_closed { first } else { Errno::EINVAL.to_ret() };
        }
        NOT_OURS
    }

    /// fsmount(2).
    fn fsmount(task, fd: Fd, flags: u32, attributes: u32) {
        stand_in_returns!(task, fd, __NR_fsmount, flags, attributes);
        if picked::is_one(fd) {
            return Errno::EBUSY.to_ret();
        }
        placeholder::flush(task);
        let done = kernel!(__NR_fsmount, fd, flags, attributes);
        if done >= 0 {
            made::finished(fd, Fd::new(done as i32), attributes);
        }
        done
    }
}

/// Records an option that the kernel has taken.
fn note(fd: Fd, key: UserPtr, value: UserPtr) {
    made::changed(fd, |known| {
        if is_text(key, b"source") {
            known.source = [0; SOURCE];
            // SAFETY: the copy routine handles bad pointers. A name that is too long is truncated.
            let _ = unsafe { ucopy::string(&mut known.source[..SOURCE - 1], value.as_ptr()) };
            return true;
        }
        with_option(key, value, |key, value| known.add(key, value))
    });
}

/// Hands an option of the program's to `add`. False if that returns it, or the option cannot be read.
fn with_option(key: UserPtr, value: UserPtr, add: impl FnOnce(&[u8], &[u8]) -> bool) -> bool {
    let (mut name, mut given) = ([0; 32], [0; picked::OPTIONS]);
    match (copy(&mut name, key), copy(&mut given, value)) {
        (Ok(length), Ok(bytes)) => add(&name[..length], &given[..bytes]),
        _ => false,
    }
}

/// A string of the program's, if it has given one.
fn copy(to: &mut [u8], from: UserPtr) -> Result<usize> {
    if from.is_null() {
        return Ok(0);
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::string(to, from.as_ptr()) }
}

/// fsconfig(2) of a context for a file system of ours.
fn change(task: &Task, fd: Fd, (command, key, value, extra): (u32, UserPtr, UserPtr, Fd)) -> isize {
    // One whose reconfiguration has failed takes nothing more.
    let is_command = command >= fsconfig_command::FSCONFIG_CMD_CREATE as u32;
    let is_reconfigure = command == fsconfig_command::FSCONFIG_CMD_RECONFIGURE as u32;
    if is_command && !is_reconfigure || picked::has_failed(fd) {
        let done = kernel!(__NR_fsconfig, stand_in::CLOSED, command, key, value, extra);
        return if failed_with(done, Errno::EBADF) { Errno::EBUSY.to_ret() } else { done };
    }
    if is_reconfigure {
        if !key.is_null() || !value.is_null() || extra.raw() != 0 {
            return Errno::EINVAL.to_ret();
        }
        let mut text = [0; picked::OPTIONS];
        let Some((picked, length)) = picked::take(fd, &mut text) else { return Errno::EBUSY.to_ret() };
        let done = fspick::reconfigure(task, picked, &text[..length]);
        if done.is_err() {
            picked::fail(fd);
        }
        return ret(done);
    }
    let done = kernel!(__NR_fsconfig, fd, command, key, value, extra);
    // A file system that is in use keeps its source.
    if done < 0 || is_text(key, b"source") {
        return done;
    }
    match with_option(key, value, |key, value| picked::add(fd, key, value)) {
        true => done,
        false => Errno::EINVAL.to_ret(),
    }
}

/// Whether a string of the program's is this one.
fn is_text(given: UserPtr, text: &[u8]) -> bool {
    let mut room = [0; 16];
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::string(&mut room, given.as_ptr()) }.is_ok_and(|length| room[..length] == *text)
}
