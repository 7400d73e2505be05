//! access(2), faccessat(2), faccessat2(2).

use lp_abi::linux::{
    __NR_faccessat, __NR_faccessat2, __NR_geteuid, __NR_getuid, __NR_newfstatat, __NR_statfs, AT_EACCESS,
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, R_OK, W_OK, X_OK, stat, statfs,
};
use lp_abi::{Errno, Fd, UserPtr};
use lp_vfs::access;
use lp_vfs::task::Task;

use crate::high::calls::chmod::last_of;
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{failed_with, handlers, kernel};
use crate::high::route::link_mode;
use crate::high::route::path::{one, plainly_hosts, plainly_ours};

handlers! {
    /// access(2).
    fn access(task, path: UserPtr, mode: u32) {
        check(task, At::cwd(path), mode, 0)
    }

    /// faccessat(2): the kernel's call takes no flags.
    fn faccessat(task, dirfd: Fd, path: UserPtr, mode: u32) {
        check(task, At { dirfd, path }, mode, 0)
    }

    /// faccessat2(2).
    fn faccessat2(task, dirfd: Fd, path: UserPtr, mode: u32, flags: u32) {
        if flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Errno::EINVAL.to_ret();
        }
        check(task, At { dirfd, path }, mode, flags)
    }
}

#[inline(always)]
fn check(task: &Task, at: At, mode: u32, flags: u32) -> isize {
    plainly_ours(task, at, || access::faccessat(task, at.dirfd, at.path, mode, flags))
        .unwrap_or_else(|| check_routed(task, at, mode, flags))
}

/// Whether a link of the host's belongs to the caller.
#[cold]
fn owns(at: At, flags: u32) -> bool {
    let mut found = core::mem::MaybeUninit::<stat>::zeroed();
    let user = if flags & AT_EACCESS != 0 { kernel!(__NR_geteuid) } else { kernel!(__NR_getuid) };
    // SAFETY: the kernel reads the program's path and fills the record in; zeros are a valid record too.
    let found = unsafe {
        lp_abi::syscall!(__NR_newfstatat, at.dirfd, at.path, found.as_mut_ptr(), AT_SYMLINK_NOFOLLOW)
            .map(|_| found.assume_init())
    };
    found.is_ok_and(|found| found.st_uid as isize == user)
}

/// What the caller may do by the mode of a link in /proc/PID/fd, if its file is ours.
#[cold]
fn allowed_by_link(task: &Task, at: At, flags: u32) -> u32 {
    let Some(bits) = link_mode::of(task, at).filter(|bits| *bits != 0) else { return 0 };
    // The kernel refuses the privileged only to execute what nobody may; the file's link has such a bit.
    let is_privileged =
        || !failed_with(kernel!(__NR_faccessat2, at.dirfd, at.path, W_OK, flags), Errno::EACCES);
    if is_privileged() {
        R_OK | W_OK | X_OK
    } else if owns(at, flags) {
        bits >> 6
    } else {
        0
    }
}

/// Whether /proc is mounted read-only.
#[cold]
fn is_proc_read_only() -> bool {
    const READ_ONLY: i64 = 1;
    let mut found = core::mem::MaybeUninit::<statfs>::zeroed();
    // SAFETY: the kernel fills the record in; zeros are a valid record too.
    let found = unsafe {
        lp_abi::syscall!(__NR_statfs, c"/proc/self".as_ptr(), found.as_mut_ptr()).map(|_| found.assume_init())
    };
    found.is_ok_and(|found| found.f_flags & READ_ONLY != 0)
}

#[inline(never)]
fn check_routed(task: &Task, at: At, mode: u32, flags: u32) -> isize {
    let host = || kernel!(__NR_faccessat, at.dirfd, at.path, mode);
    let plain = if flags == 0 { plainly_hosts(task, at, Last::Follow, host) } else { None };
    plain.unwrap_or_else(|| check_slow(task, at, mode, flags))
}

#[inline(never)]
fn check_slow(task: &Task, at: At, mode: u32, flags: u32) -> isize {
    let ours = |at: At| access::faccessat(task, at.dirfd, at.path, mode, flags);
    let host = |at: At| match flags {
        0 => kernel!(__NR_faccessat, at.dirfd, at.path, mode),
        _ => match kernel!(__NR_faccessat2, at.dirfd, at.path, mode, flags) {
            refused if flags & AT_SYMLINK_NOFOLLOW != 0 && failed_with(refused, Errno::EACCES) => {
                let allowed = allowed_by_link(task, at, flags);
                match mode & !allowed {
                    // The kernel looks at the mount behind the mode.
                    0 if mode & W_OK != 0 && is_proc_read_only() => Errno::EROFS.to_ret(),
                    0 => 0,
                    _ => refused,
                }
            }
            done => done,
        },
    };
    one(task, at, last_of(flags), ours, host)
}
