//! open(2), openat(2), openat2(2), creat(2).

use lp_abi::linux::{O_CREAT, O_TRUNC, O_WRONLY, open_how};
use lp_abi::{Errno, Fd, MAX_SYMLINKS, UserPtr, UserSlice};
use lp_vfs::open;
use lp_vfs::task::{Outside, Place, Task};

use crate::high::calls::open_host::{Host, open_by_kernel, open_host, open_without_links};
use crate::high::calls::open_how::{Given, How};
use crate::high::calls::open_ours::open_ours;
use crate::high::calls::openat2;
use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::frame::handler::{given_slice, handlers};
use crate::high::route::path::{
    is_hosts_without_links, is_plainly_hosts, is_plainly_ours, leave_on, route_on,
};

handlers! {
    /// open(2).
    fn open(task, path: UserPtr, flags: u32, mode: u32) {
        open_at(task, At::cwd(path), How::plain(flags, mode))
    }

    /// openat(2).
    fn openat(task, dirfd: Fd, path: UserPtr, flags: u32, mode: u32) {
        open_at(task, At { dirfd, path }, How::plain(flags, mode))
    }

    /// creat(2).
    fn creat(task, path: UserPtr, mode: u32) {
        open_routed(task, At::cwd(path), &How::plain(O_CREAT | O_WRONLY | O_TRUNC, mode))
    }

    /// openat2(2).
    fn openat2(task, dirfd: Fd, path: UserPtr, how: UserSlice) {
        let at = At { dirfd, path };
        match open::read_how(how) {
            Ok(limits) if limits.resolve & openat2::WALKS != 0 => openat2::open(task, at, &limits, how),
            _ => open_routed(task, at, &How::extended(how)),
        }
    }

    /// open(2) by a thread that has restricted itself.
    fn open_checked(task, path: UserPtr, flags: u32, mode: u32) {
        open_held(task, At::cwd(path), flags, mode)
    }

    /// openat(2) by a thread that has restricted itself.
    fn openat_checked(task, dirfd: Fd, path: UserPtr, flags: u32, mode: u32) {
        open_held(task, At { dirfd, path }, flags, mode)
    }

    /// creat(2) by a thread that has restricted itself.
    fn creat_checked(task, path: UserPtr, mode: u32) {
        open_held(task, At::cwd(path), O_CREAT | O_WRONLY | O_TRUNC, mode)
    }
}

#[inline(always)]
fn open_at(task: &'static Task<'static>, at: At, how: How) -> isize {
    if is_plainly_ours(task, at) {
        return open_ours(
            task,
            &how,
            || how.open(task, at),
            |outside| open_on(task, at, Some(outside), &how),
        );
    }
    open_routed(task, at, &how)
}

/// An open by a thread that has restricted itself: in the file system as by openat2(2), which checks that.
#[cold]
fn open_held(task: &'static Task<'static>, at: At, flags: u32, mode: u32) -> isize {
    let same = open::same_how(flags, mode);
    let held = given_slice((&raw const same).addr(), size_of::<open_how>());
    open_routed(task, at, &How { flags, mode, given: Given::Held(held) })
}

/// An open of any path.
#[inline(never)]
pub(super) fn open_routed(task: &'static Task<'static>, at: At, how: &How) -> isize {
    if is_hosts_without_links(Some(task), at)
        && let Some(done) = open_without_links(task, at, how)
    {
        return done;
    }
    if how.last() != Last::Name
        && is_plainly_hosts(Some(task), at)
        && let Host::Done(done) = open_host(task, at, how)
    {
        return done;
    }
    open_on(task, at, None, how)
}

/// An open of any path, or of that on which a walk left the mounts. Links lead from the host into mounts and
/// out of them any number of times.
fn open_on(task: &'static Task<'static>, mut at: At, mut outside: Option<Outside>, how: &How) -> isize {
    for _ in 0..MAX_SYMLINKS {
        let (inside, refused) = match route_on(task, Which::First, at, how.last(), outside) {
            Route::Ours(inside) => (inside, None),
            Route::Host => match open_host(task, leave_on(task, at, outside), how) {
                Host::Link(inside, refused) => (inside, Some(refused)),
                Host::Done(done) => return done,
            },
            Route::Elsewhere(at) => return open_by_kernel(task, at, how),
            Route::Itself(fd, _) => return reopen(task, fd, how),
            Route::Bad(errno) => return errno.to_ret(),
        };
        let mut left = None;
        let done = open_ours(
            task,
            how,
            || how.open(task, inside),
            |outside| {
                left = Some(outside);
                0
            },
        );
        match (left, refused) {
            (None, _) => return done,
            (Some(Outside::AsGiven), Some(refused)) => return refused,
            (Some(_), _) => (at, outside) = (inside, left),
        }
    }
    Errno::ELOOP.to_ret()
}

/// Reopens the file of descriptor `fd`, which has no path, through /proc/self/fd.
#[cold]
pub(super) fn reopen(task: &'static Task<'static>, fd: Fd, how: &How) -> isize {
    let mode = match how.given {
        Given::How(given) => match open::read_how(given) {
            Ok(given) => given.mode(),
            Err(errno) => return errno.to_ret(),
        },
        _ => how.mode,
    };
    let again = || open::reopen(task, fd, how.flags, mode).map(Place::Inside);
    open_ours(task, how, again, |_| Errno::ENOENT.to_ret())
}
