//! stat(2), lstat(2), fstat(2), newfstatat(2), statx(2).

use lp_abi::linux::{__NR_newfstatat, __NR_statx, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, stat, statx, S_IFLNK, S_IFMT};
use lp_abi::{Errno, Fd, UserPtr};
use lp_region::ucopy;
use lp_vfs::stat as attributes;
use lp_vfs::task::Task;

use crate::high::calls::chmod::last_of;
use crate::high::fd::descriptor::listed_or_return;
use crate::high::fd::{descriptor, placeholder};
use crate::high::frame::at::{At, EMPTY, Route, Which};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::route::path::{is_base_ours, one, route};

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
        if flags & AT_EMPTY_PATH != 0 && is_empty(path) {
            return fstat_by_empty_path(task, dirfd, to, flags);
        }
        stat_at(task, At { dirfd, path }, to, flags)
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

#[inline]
fn stat_at(task: &Task, at: At, to: UserPtr<stat>, flags: u32) -> isize {
    let ours = |at: At| attributes::fstatat(task, at.dirfd, at.path, to, flags);
    let host = |at: At| {
        let done = kernel!(__NR_newfstatat, at.dirfd, at.path, to, flags);
        // SAFETY: the field lies within the kernel's `stat`.
        reached(done, flags, unsafe { &raw const (*to.as_ptr()).st_mode })
    };
    let done = one(task, at, last_of(flags), ours, host);
    if done == Errno::ENOENT.to_ret()
        && let Route::Nameless(fd) = route(task, Which::First, at, last_of(flags))
    {
        return ret(attributes::fstat(task, fd, to));
    }
    done
}

/// The kernel's result for a host path. A link that was followed is a placeholder, to which a link of the host
/// leads: `ELOOP`, as open(2) fails there, so that [`one`] looks where the link leads.
#[inline]
fn reached<T: Copy + Into<u32>>(done: isize, flags: u32, mode: *const T) -> isize {
    if done != 0 || flags & AT_SYMLINK_NOFOLLOW != 0 {
        return done;
    }
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::get(mode) }.map(Into::into) {
        Ok(mode) if mode & S_IFMT == S_IFLNK => Errno::ELOOP.to_ret(),
        _ => done,
    }
}

fn statx_at(task: &Task, at: At, flags: u32, mask: u32, to: UserPtr<statx>) -> isize {
    let ours = |at: At| attributes::statx(task, at.dirfd, at.path, flags, mask, to);
    let host = |at: At| {
        let done = kernel!(__NR_statx, at.dirfd, at.path, flags, mask, to);
        // SAFETY: the field lies within the kernel's `statx`.
        reached(done, flags, unsafe { &raw const (*to.as_ptr()).stx_mode })
    };
    let done = one(task, at, last_of(flags), ours, host);
    if done == Errno::ENOENT.to_ret()
        && let Route::Nameless(fd) = route(task, Which::First, at, last_of(flags))
    {
        return ret(attributes::statx(task, fd, EMPTY, flags | AT_EMPTY_PATH, mask, to).map(drop));
    }
    done
}
