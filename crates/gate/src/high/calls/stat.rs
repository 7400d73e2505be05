//! stat(2), lstat(2), fstat(2), newfstatat(2), statx(2).

use core::cell::Cell;

use lp_abi::linux::{
    __NR_newfstatat, __NR_statx, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFLNK, S_IFMT, stat, statx,
};
use lp_abi::{Errno, Fd, UserPtr};
use lp_region::ucopy;
use lp_vfs::task::Task;
use lp_vfs::{stat as attributes, target};

use crate::high::calls::chmod::last_of;
use crate::high::fd::descriptor::listed_or_return;
use crate::high::fd::{descriptor, placeholder};
use crate::high::frame::at::{At, EMPTY};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::route::link_mode;
use crate::high::route::path::{is_base_ours, is_plainly_ours, one, plainly_hosts, plainly_ours};

handlers! {
    /// fstat(2).
    fn fstat(task, fd: Fd, to: UserPtr<stat>) {
        // Programs probe for their open descriptors with fstat: the gate's own must look closed.
        if descriptor::word(task, fd) == 0 && placeholder::is_guarded(task, fd) {
            return Errno::EBADF.to_ret();
        }
        listed_or_return!(task, fd);
        ret(attributes::fstat(task, fd, to))
    }

    /// stat(2).
    fn stat(task, path: UserPtr, to: UserPtr<stat>) {
        stat_at(task, At::cwd(path), to, 0)
    }

    /// lstat(2).
    fn lstat(task, path: UserPtr, to: UserPtr<stat>) {
        stat_at(task, At::cwd(path), to, AT_SYMLINK_NOFOLLOW)
    }

    /// newfstatat(2). With an empty path it is glibc's fstat.
    fn newfstatat(task, dirfd: Fd, path: UserPtr, to: UserPtr<stat>, flags: u32) {
        if let Some(done) = quick(task, At { dirfd, path }, to, flags) {
            return done;
        }
        if flags & AT_EMPTY_PATH != 0 && is_empty(path) {
            return fstat_by_empty_path(task, dirfd, to, flags);
        }
        stat_routed(task, At { dirfd, path }, to, flags)
    }

    /// statx(2).
    fn statx(task, dirfd: Fd, path: UserPtr, flags: u32, mask: u32, to: UserPtr<statx>) {
        if flags & AT_EMPTY_PATH != 0 && is_empty(path) {
            if is_own_directory(task, dirfd) {
                return ret(attributes::statx(task, Fd::CWD, EMPTY, flags, mask, to).map(drop));
            }
            if !descriptor::is_listed(task, dirfd) {
                return descriptor::other(task, dirfd);
            }
            return ret(attributes::statx(task, dirfd, EMPTY, flags, mask, to).map(drop));
        }
        statx_at(task, At { dirfd, path }, flags, mask, to)
    }
}

/// Whether `dirfd` denotes the working directory, and that is ours.
fn is_own_directory(task: &Task, dirfd: Fd) -> bool {
    dirfd == Fd::CWD && is_base_ours(task, dirfd)
}

/// newfstatat(2) of `dirfd` itself.
#[inline(never)]
fn fstat_by_empty_path(task: &Task, dirfd: Fd, to: UserPtr<stat>, flags: u32) -> isize {
    if is_own_directory(task, dirfd) {
        return ret(attributes::fstatat(task, Fd::CWD, EMPTY, to, flags).map(drop));
    }
    if !descriptor::is_listed(task, dirfd) {
        return descriptor::other(task, dirfd);
    }
    ret(attributes::fstat(task, dirfd, to))
}

/// Whether a path is empty, or NULL, which calls with `AT_EMPTY_PATH` treat as empty.
#[inline(always)]
pub(crate) fn is_empty(path: UserPtr) -> bool {
    // SAFETY: the copy routine handles bad pointers.
    path.is_null() || unsafe { ucopy::is_empty(path.as_ptr()) }
}

#[inline(always)]
fn stat_at(task: &Task, at: At, to: UserPtr<stat>, flags: u32) -> isize {
    match quick(task, at, to, flags) {
        Some(done) => done,
        None => stat_routed(task, at, to, flags),
    }
}

/// Fast path of newfstatat(2). Not with [`plainly_ours`]: what its closure returns goes through memory.
#[inline(always)]
fn quick(task: &Task, at: At, to: UserPtr<stat>, flags: u32) -> Option<isize> {
    if !attributes::are_plain(flags) || !is_plainly_ours(task, at) {
        return None;
    }
    match attributes::fstatat_quick(task, at.dirfd, at.path, to, flags)? {
        Ok(()) => Some(0),
        Err(errno) => Some(errno.to_ret()),
    }
}

#[inline(never)]
fn stat_routed(task: &Task, at: At, to: UserPtr<stat>, flags: u32) -> isize {
    let host = || {
        let done = kernel!(__NR_newfstatat, at.dirfd, at.path, to, flags);
        // SAFETY: the field lies within the kernel's `stat`.
        reached_plainly(done, flags, unsafe { &raw const (*to.as_ptr()).st_mode })
    };
    plainly_hosts(task, at, last_of(flags), host).unwrap_or_else(|| stat_slow(task, at, to, flags))
}

#[inline(never)]
fn stat_slow(task: &Task, at: At, to: UserPtr<stat>, flags: u32) -> isize {
    let ours = |at: At| attributes::fstatat(task, at.dirfd, at.path, to, of_itself(at, flags));
    let met_link = Cell::new(false);
    let host = |at: At| {
        let done = kernel!(__NR_newfstatat, at.dirfd, at.path, to, flags);
        // SAFETY: the field lies within the kernel's `stat`.
        reached(task, at, done, flags, unsafe { &raw mut (*to.as_ptr()).st_mode }, &met_link)
    };
    answered(one(task, at, last_of(flags), ours, host), &met_link)
}

/// The flags for a path, which may stand for a descriptor's own file.
fn of_itself(at: At, flags: u32) -> u32 {
    if target::is_itself(at.path) { flags | AT_EMPTY_PATH } else { flags }
}

/// The kernel's result for a path of which [`plainly_hosts`] knows the text: `ELOOP` if a link was followed
/// and a link was found, so that [`reached`] looks closely.
#[inline(always)]
fn reached_plainly<T: Copy + Into<u32>>(done: isize, flags: u32, field: *const T) -> isize {
    if done != 0 || flags & AT_SYMLINK_NOFOLLOW != 0 {
        return done;
    }
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::get(field) }.map(Into::into) {
        Ok(mode) if mode & S_IFMT == S_IFLNK => Errno::ELOOP.to_ret(),
        _ => done,
    }
}

/// The kernel's result for a host path. Where a link was followed and a link was found, it may be a
/// placeholder, to which a link of the host leads: `ELOOP`, as open(2) fails there, so that [`one`] looks
/// where it leads. A link in /proc/PID/fd itself gets its mode.
#[inline]
fn reached<T: Copy + Into<u32> + From<u16>>(
    task: &Task,
    at: At,
    done: isize,
    flags: u32,
    field: *mut T,
    met_link: &Cell<bool>,
) -> isize {
    if done != 0 {
        return done;
    }
    let follows = flags & AT_SYMLINK_NOFOLLOW == 0;
    // SAFETY: the copy routine handles bad pointers.
    let bits = match unsafe { ucopy::get(field) }.map(Into::into) {
        Ok(mode) if follows && mode & S_IFMT == S_IFLNK => {
            met_link.set(true);
            if mode == S_IFLNK { link_mode::of_opened(task, at) } else { None }
        }
        Ok(S_IFLNK) => link_mode::of(task, at),
        _ => return done,
    };
    if let Some(bits) = bits {
        // SAFETY: as above.
        let _ = unsafe { ucopy::put(field, &T::from((S_IFLNK | bits) as u16)) };
    }
    if follows { Errno::ELOOP.to_ret() } else { done }
}

/// The result of a call for which [`reached`] may have looked: the kernel's, if the link leads into no mount.
/// It is then the program's own, opened with `O_PATH`.
#[inline]
fn answered(done: isize, met_link: &Cell<bool>) -> isize {
    if met_link.get() && done == Errno::ELOOP.to_ret() { 0 } else { done }
}

#[inline(always)]
fn statx_at(task: &Task, at: At, flags: u32, mask: u32, to: UserPtr<statx>) -> isize {
    plainly_ours(task, at, || attributes::statx(task, at.dirfd, at.path, flags, mask, to))
        .unwrap_or_else(|| statx_routed(task, at, flags, mask, to))
}

#[inline(never)]
fn statx_routed(task: &Task, at: At, flags: u32, mask: u32, to: UserPtr<statx>) -> isize {
    let host = || {
        let done = kernel!(__NR_statx, at.dirfd, at.path, flags, mask, to);
        // SAFETY: the field lies within the kernel's `statx`.
        reached_plainly(done, flags, unsafe { &raw const (*to.as_ptr()).stx_mode })
    };
    plainly_hosts(task, at, last_of(flags), host).unwrap_or_else(|| statx_slow(task, at, flags, mask, to))
}

#[inline(never)]
fn statx_slow(task: &Task, at: At, flags: u32, mask: u32, to: UserPtr<statx>) -> isize {
    let ours = |at: At| attributes::statx(task, at.dirfd, at.path, of_itself(at, flags), mask, to);
    let met_link = Cell::new(false);
    let host = |at: At| {
        let done = kernel!(__NR_statx, at.dirfd, at.path, flags, mask, to);
        // SAFETY: the field lies within the kernel's `statx`.
        reached(task, at, done, flags, unsafe { &raw mut (*to.as_ptr()).stx_mode }, &met_link)
    };
    answered(one(task, at, last_of(flags), ours, host), &met_link)
}
