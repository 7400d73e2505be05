//! Decides whether a path is ours; entry points for calls that take one path. `pair.rs` has those for two.
//!
//! Most paths of a program belong to the host, and their text tells ([`is_plainly_hosts`]). A path gets a
//! closer look if it could still lead into a mount: it contains `//`, `/./` or `/../`, lies under /proc or
//! /dev (magic links to descriptors), or is relative to a host directory and names a mount's last component.
//! Symbolic links of the host into a mount are found when the kernel, which sees nothing there, fails: see
//! [`hostlink`]. Where it would not fail, they are looked for first: by calls that make a name (the mount's,
//! in a directory behind a link, or that to which a link leads), and while a mount covers a host directory.

use lp_abi::{Errno, Fd, MAX_SYMLINKS, PATH_MAX, Result};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::root;
use lp_vfs::target;
use lp_vfs::task::{Outside, Place, Task};

use crate::high::fd::descriptor;
use crate::high::frame::at::{At, Last, Route, Which, buffer};
use crate::high::frame::handler::{ReturnValue, failed_with, given};
use crate::high::route::{absolute, elsewhere, hostlink, kernels, magic, rooted};
use crate::high::run::apart;
use crate::high::run::mounts::{MountPaths, may_be_known, mounts};

/// Routes the path `at`.
#[inline]
pub(crate) fn route(task: &Task, which: Which, at: At, last: Last) -> Route {
    if is_plainly_ours(task, at) { Route::Ours(at) } else { route_slow(Some(task), which, at, last) }
}

/// Fast path: whether the first bytes of a path prove that it is ours.
#[inline(always)]
pub(crate) fn is_plainly_ours(task: &Task, at: At) -> bool {
    // SAFETY: the gate's fault handler is installed.
    let word = unsafe { ucopy::word(at.path.as_ptr()) };
    if word as u8 == b'/' {
        return task.prefix.starts(word);
    }
    word != u64::MAX && is_base_ours(task, at.dirfd)
}

/// Makes a call with one path in the file system, if its first bytes prove that it is ours. `None` to make it
/// with [`one`], also where the path leads out: until then the call has no effect.
#[inline(always)]
pub(crate) fn plainly_ours<T: ReturnValue>(
    task: &Task,
    at: At,
    ours: impl FnOnce() -> Result<Place<T>>,
) -> Option<isize> {
    if !is_plainly_ours(task, at) {
        return None;
    }
    match ours() {
        Ok(Place::Inside(value)) => Some(value.rax()),
        Ok(Place::Outside(_)) => None,
        Err(errno) => Some(errno.to_ret()),
    }
}

/// Fast path: whether the text of a path proves that it leads to the host, but for symbolic links on the way.
/// `task` is that of a process that has joined.
#[inline(always)]
pub(crate) fn is_plainly_hosts(task: Option<&Task>, at: At) -> bool {
    // SAFETY: the gate's fault handler is installed.
    let word = unsafe { ucopy::word(at.path.as_ptr()) };
    // SAFETY: as above.
    let is_straight = || unsafe { ucopy::is_straight(at.path.as_ptr()) };
    word as u8 == b'/'
        && !mounts().may_hold(word)
        && !may_be_known(word)
        && task.and_then(root::of).is_none()
        && is_straight()
}

/// Makes a call with one path in the kernel, if the path's text proves that it leads to the host. `None` to
/// make it with [`one`], also where a link leads into a mount: until then the call has no effect.
#[inline(always)]
pub(crate) fn plainly_hosts(task: &Task, at: At, last: Last, host: impl FnOnce() -> isize) -> Option<isize> {
    if !is_plainly_hosts(Some(task), at) {
        return None;
    }
    let done = host();
    (!may_be_link(done) || !hostlink::meets_link(at, last)).then_some(done)
}

/// Whether relative paths start from a directory of ours.
#[inline(always)]
pub(crate) fn is_base_ours(task: &Task, dirfd: Fd) -> bool {
    if dirfd == Fd::CWD {
        // Relaxed: the thread's own process; races are the program's.
        return task.directories.get().cwd.load(Ordering::Relaxed) != 0;
    }
    descriptor::is_listed(task, dirfd)
}

/// Whether a descriptor is the gate's own, and closed for the program.
fn is_hidden(task: Option<&Task>, fd: Fd) -> bool {
    task.map_or_else(|| apart::is_hidden(fd), |task| descriptor::is_hidden(task, fd))
}

/// The route in a process that is [`apart`]. [`Route::Host`] is certain; anything else is a reason to join.
pub(crate) fn route_apart(which: Which, at: At, last: Last) -> Route {
    route_slow(None, which, at, last)
}

#[inline(never)]
fn route_slow(task: Option<&Task>, which: Which, at: At, last: Last) -> Route {
    // The name may be that of a mount, behind a link.
    if last != Last::Name && is_plainly_hosts(task, at) {
        return Route::Host;
    }
    match task.and_then(|task| rooted::route(task, at)) {
        Some(inside) => Route::Ours(inside),
        None => route_from_host(task, which, at, last),
    }
}

/// The route of a path that starts at the host's root directory if it is absolute.
fn route_from_host(task: Option<&Task>, which: Which, at: At, last: Last) -> Route {
    let mounts = mounts();
    let text = buffer(which);
    // SAFETY: the gate's fault handler is installed.
    let length = match unsafe { ucopy::string(text, at.path.as_ptr()) } {
        Ok(length) => length,
        Err(Errno::ENAMETOOLONG) => PATH_MAX,
        // Some calls take NULL as the directory itself, which the kernel does not know.
        Err(_) if at.path.is_null() && task.is_some_and(|task| is_base_ours(task, at.dirfd)) => {
            return Route::Ours(at);
        }
        // The kernel returns EFAULT where the call does, and accepts NULL where the call does.
        Err(_) => return Route::Host,
    };
    if text[0] == b'/' {
        if mounts.holds(&text[..length]) {
            return rooted::from_host(task, which, at);
        }
        // The kernel refuses a path that is too long.
        return if length == PATH_MAX {
            Route::Host
        } else {
            route_absolute(task, mounts, which, at, last, length)
        };
    }
    route_relative(task, mounts, which, at, last, length)
}

/// An absolute path that does not start with a mount's, `length` bytes in the buffer of `which`.
fn route_absolute(
    task: Option<&Task>,
    mounts: &MountPaths,
    which: Which,
    at: At,
    last: Last,
    length: usize,
) -> Route {
    let text = &buffer(which)[..length];
    if let Some(program) = task.and_then(|task| magic::in_memfd(task, mounts, text)) {
        return Route::Ours(At::cwd(given(at.path.addr() + length - program.len())));
    }
    let is_crooked = absolute::is_crooked(text);
    let may_name_mount = last == Last::Name && mounts.names(text);
    let leads_out = mounts.are_whole() && kernels::may_lead_out(text);
    if text.starts_with(b"/proc/") || text.starts_with(b"/dev/") || text == b"/etc/mtab" {
        let route = magic::route(task, which, last, length);
        match route {
            Route::Host if is_crooked || may_name_mount => {}
            Route::Host if leads_out => return kernels::route_linked(which, at, last),
            Route::Host if mounts.cover_any() && !mounts.are_whole() => {}
            route => return route,
        }
    }
    if may_name_mount {
        return hostlink::route_walked(task, which, at, last);
    }
    if is_crooked {
        return hostlink::route_crooked(task, which, at, last, length);
    }
    if mounts.cover_any() && !mounts.are_whole() {
        return hostlink::route_covered(which, at, last);
    }
    Route::Host
}

/// Whether a path leads to the host unless a symbolic link is on the way, while a mount covers a host
/// directory. Asked before an open for reading: the kernel can open it and look for links in one call.
#[inline(always)]
pub(crate) fn is_hosts_without_links(task: Option<&Task>, at: At) -> bool {
    mounts().cover_any() && !mounts().are_whole() && tells_no_mount(task, at)
}

/// Whether a path's text tells that it leads to no mount, but for symbolic links on the way.
#[inline(never)]
fn tells_no_mount(task: Option<&Task>, at: At) -> bool {
    if task.and_then(root::of).is_some() {
        return false;
    }
    let mounts = mounts();
    let text = buffer(Which::First);
    // SAFETY: the gate's fault handler is installed.
    let Ok(length) = (unsafe { ucopy::string(text, at.path.as_ptr()) }) else { return false };
    match &text[..length] {
        [] => false,
        text @ [b'/', ..] => {
            // SAFETY: as above.
            let may_be_known = may_be_known(unsafe { ucopy::word(at.path.as_ptr()) });
            // Magic links are behind symbolic ones in /dev.
            let is_known = || !text.starts_with(b"/dev/") || task.is_none() && magic::may_concern_mount(text);
            !(may_be_known && is_known() || absolute::is_crooked(text) || mounts.holds(text))
        }
        text => {
            let is_hosts = !task.is_some_and(|task| is_base_ours(task, at.dirfd));
            is_hosts && !is_hidden(task, at.dirfd) && !mounts.names(text) && !elsewhere::may_continue(text)
        }
    }
}

fn route_relative(
    task: Option<&Task>,
    mounts: &MountPaths,
    which: Which,
    at: At,
    last: Last,
    length: usize,
) -> Route {
    if task.is_some_and(|task| is_base_ours(task, at.dirfd)) {
        return Route::Ours(at);
    }
    if is_hidden(task, at.dirfd) {
        // For the program it is closed. What the kernel finds before that comes first.
        return Route::Elsewhere(At { dirfd: Fd::NONE, path: at.path });
    }
    if length == 0 {
        return Route::Host;
    }
    if mounts.are_whole() {
        return kernels::route_relative(task, mounts, which, at, last);
    }
    if length == PATH_MAX {
        return Route::Host; // The kernel refuses it.
    }
    let text = &buffer(which)[..length];
    if mounts.names(text) {
        return hostlink::route_walked(task, which, at, last);
    }
    // The directory may be one under /proc.
    if elsewhere::may_continue(text)
        && let Some(length) = absolute::join(which, at.dirfd, length)
        && buffer(which).starts_with(b"/proc/")
    {
        match magic::route(task, which, last, length) {
            Route::Host if mounts.cover_any() => {}
            route => return route,
        }
    }
    if mounts.cover_any() { hostlink::route_covered(which, at, last) } else { Route::Host }
}

/// Makes a call with one path: with `ours` in the file system or with `host` in the kernel, according to its
/// route.
#[inline(always)]
pub(crate) fn one<T: ReturnValue>(
    task: &Task,
    at: At,
    last: Last,
    ours: impl Fn(At) -> Result<Place<T>>,
    host: impl Fn(At) -> isize,
) -> isize {
    let raw = |at: At| ours(at).map(|place| place.map(ReturnValue::rax));
    if !is_plainly_ours(task, at) {
        return one_slow(task, at, last, None, &raw, &host);
    }
    match ours(at) {
        Ok(Place::Inside(value)) => value.rax(),
        Ok(Place::Outside(outside)) => one_slow(task, at, last, Some(outside), &raw, &host),
        Err(errno) => errno.to_ret(),
    }
}

/// A call's effect on a path in the file system. The value is `rax`.
type Ours<'a> = &'a dyn Fn(At) -> Result<Place<isize>>;

/// [`one`], where the first bytes do not tell or a walk in the file system has led `outside`. Links lead from
/// the host into mounts and out of them any number of times.
#[inline(never)]
fn one_slow(
    task: &Task,
    mut at: At,
    last: Last,
    mut outside: Option<Outside>,
    ours: Ours<'_>,
    host: &dyn Fn(At) -> isize,
) -> isize {
    for _ in 0..MAX_SYMLINKS {
        let (inside, refused) = match route_on(task, Which::First, at, last, outside) {
            Route::Ours(inside) => (inside, None),
            Route::Host => {
                let path = leave_on(task, at, outside);
                let done = host(path);
                match link_into_mount(path, last, done) {
                    Some(inside) => (inside, Some(done)),
                    None => return done,
                }
            }
            Route::Elsewhere(at) => return host(at),
            Route::Itself(fd, named) => match (one_itself(fd, ours), named) {
                (Some(done), _) => return done,
                (None, Some(inside)) => (inside, None),
                (None, None) => return Errno::ENOENT.to_ret(),
            },
            Route::Bad(errno) => return errno.to_ret(),
        };
        match (ours(inside), refused) {
            (Ok(Place::Inside(value)), _) => return value,
            (Ok(Place::Outside(Outside::AsGiven)), Some(done)) => return done,
            (Ok(Place::Outside(again)), _) => (at, outside) = (inside, Some(again)),
            (Err(errno), _) => return errno.to_ret(),
        }
    }
    Errno::ELOOP.to_ret()
}

/// Makes the call on the file of a descriptor. `None` if it is one that needs a path.
fn one_itself(fd: Fd, ours: Ours<'_>) -> Option<isize> {
    flat(ours(At { dirfd: fd, path: target::ITSELF })).filter(|done| *done != Errno::ENOENT.to_ret())
}

/// The file system's answer as `rax`; `None` if the path turned out to lie outside.
pub(crate) fn flat<T: ReturnValue>(answer: Result<Place<T>>) -> Option<isize> {
    match answer {
        Ok(Place::Inside(value)) => Some(value.rax()),
        Ok(Place::Outside(_)) => None,
        Err(errno) => Some(errno.to_ret()),
    }
}

/// The path on which a walk left the mounts, for the kernel.
pub(crate) fn leave(task: &Task, at: At, outside: Outside) -> At {
    match outside {
        Outside::AsGiven => at,
        Outside::Rewritten(_) => in_scratch(task.scratch.outside.get().cast()),
    }
}

/// A path that a walk has left in one of the task's buffers.
pub(super) fn in_scratch(buffer: *const u8) -> At {
    At::cwd(given(buffer as usize))
}

/// The route of the path on which a walk left the mounts: a symbolic link may lead through one of the
/// kernel's magic links to something of ours. For `Route::Host`, [`leave`] gives the kernel's path.
#[cold]
pub(crate) fn route_outside(task: &Task, which: Which, at: At, last: Last, outside: Outside) -> Route {
    match outside {
        Outside::AsGiven => Route::Host,
        Outside::Rewritten(_) => route_from_host(Some(task), which, leave(task, at, outside), last),
    }
}

/// The route of a path, or of that on which a walk left the mounts.
#[inline]
pub(crate) fn route_on(task: &Task, which: Which, at: At, last: Last, outside: Option<Outside>) -> Route {
    match outside {
        Some(outside) => route_outside(task, which, at, last, outside),
        None => route(task, which, at, last),
    }
}

/// The path, or that on which a walk left the mounts, for the kernel.
#[inline]
pub(crate) fn leave_on(task: &Task, at: At, outside: Option<Outside>) -> At {
    outside.map_or(at, |outside| leave(task, at, outside))
}

/// If the kernel's result `done` is one that a link into a mount may cause, the path there.
fn link_into_mount(at: At, last: Last, done: isize) -> Option<At> {
    let may_be = may_be_link(done) || last.follows() && may_be_placeholder(done);
    if may_be { hostlink::into_mount(Which::First, at, last) } else { None }
}

/// Whether the kernel's result is one that a path through a link into a mount gets.
pub(crate) fn may_be_link(done: isize) -> bool {
    failed_with(done, Errno::ENOENT) || failed_with(done, Errno::ENOTDIR) || failed_with(done, Errno::ELOOP)
}

/// Whether the kernel's result is one that a path gets if it leads to a descriptor of a file of ours, by
/// links of the host and of /proc: the kernel follows them to the placeholder, a symbolic link, and some
/// calls refuse to change one.
fn may_be_placeholder(done: isize) -> bool {
    failed_with(done, Errno::EOPNOTSUPP)
        || failed_with(done, Errno::EINVAL)
        || failed_with(done, Errno::EPERM)
}

/// Whether a path from the host may lead into a mount without the kernel failing, or must be walked to know.
#[cold]
pub(crate) fn may_enter(at: At) -> bool {
    let text = buffer(Which::First);
    // SAFETY: the gate's fault handler is installed.
    let Ok(length) = (unsafe { ucopy::string(text, at.path.as_ptr()) }) else { return false };
    let (text, mounts) = (&text[..length], mounts());
    mounts.holds(text)
        || mounts.cover_any()
        || mounts.are_whole()
        || mounts.names(text)
        || absolute::is_crooked(text)
}

/// Makes a call with one path in the kernel, if the path leads to the host. `None` if it leads into a mount.
pub(crate) fn hosts(task: &Task, at: At, last: Last, host: impl FnOnce(At) -> isize) -> Option<isize> {
    if may_be_ours(task, at, last) {
        return None;
    }
    let done = host(at);
    link_into_mount(at, last, done).is_none().then_some(done)
}

/// Whether a path must not go to the kernel unexamined, because it may be one of ours.
pub(crate) fn may_be_ours(task: &Task, at: At, last: Last) -> bool {
    !matches!(route(task, Which::First, at, last), Route::Host)
}
