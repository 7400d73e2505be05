//! open(2), openat(2), openat2(2), creat(2).

use lp_abi::linux::{__NR_openat, __NR_openat2, O_CLOEXEC, O_CREAT, O_TRUNC, O_WRONLY, open_how};
use lp_abi::{Errno, Fd, MAX_SYMLINKS, Result, UserPtr, UserSlice};
use lp_region::sync::Ordering;
use lp_region::{InodeRef, ucopy};
use lp_vfs::file;
use lp_vfs::open::{self, Opened, Top};
use lp_vfs::table::{self, entry};
use lp_vfs::task::{Outside, Place, Task};
use lp_vfs::watch::{self, Touched};

use crate::high::calls::openat2;
use crate::high::fd::{device, directory, fd_info, parent, placeholder};
use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::frame::handler::{given_slice, handlers, interruptible, thread};
use crate::high::route::hostlink;
use crate::high::route::path::{
    is_hosts_without_links, is_plainly_hosts, is_plainly_ours, leave_on, may_be_link, route_on,
};
use crate::high::run::mounts::may_be_known;
use crate::high::run::{lock_table, mount_table};
use crate::high::special::node;
use crate::high::watch::shadow_fd;
use crate::low::live::deferred;
use crate::low::tools::names;

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

/// Arguments of an open.
pub(super) struct How {
    flags: u32,
    mode: u32,
    given: Given,
}

/// The `open_how` of an open.
#[derive(Clone, Copy)]
enum Given {
    /// There is none.
    Nothing,
    /// That of openat2(2).
    How(UserSlice),
    /// One for the file system only, of a thread that has restricted itself.
    Held(UserSlice),
}

impl How {
    #[inline(always)]
    pub(super) fn plain(flags: u32, mode: u32) -> How {
        How { flags, mode, given: Given::Nothing }
    }

    /// openat2's argument. The callee that makes the call validates it.
    #[cold]
    pub(super) fn extended(given: UserSlice) -> How {
        let (flags, _) = openat2::flags_of(given.start().addr(), given.len());
        How { flags, mode: 0, given: Given::How(given) }
    }

    /// Opens `at` in the file system.
    #[inline(always)]
    fn open(&self, task: &Task, at: At) -> Result<Place<Opened>> {
        match self.given {
            Given::Nothing => open::openat(task, at.dirfd, at.path, self.flags, self.mode),
            Given::How(given) | Given::Held(given) => open_extended(task, at, given),
        }
    }

    /// [`hostlink::makes_behind_link`].
    pub(super) fn makes_behind_link(&self) -> bool {
        hostlink::makes_behind_link(self.flags)
    }

    pub(super) fn last(&self) -> Last {
        Last::of_open(self.flags)
    }
}

/// openat2(2) in the file system, from the directory of the path.
#[cold]
#[inline(never)]
fn open_extended(task: &Task, at: At, given: UserSlice) -> Result<Place<Opened>> {
    open::openat2(task, at.dirfd, at.path, &open::read_how(given)?, Top::Base)
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

/// Installs what `open` opens in the file system. If the path leads to the host after all, `leave` returns
/// the result.
#[inline(always)]
pub(super) fn open_ours(
    task: &'static Task<'static>,
    how: &How,
    open: impl FnOnce() -> Result<Place<Opened>>,
    leave: impl FnOnce(Outside) -> isize,
) -> isize {
    // As in the kernel, the number comes first: without one nothing is created.
    let number = match placeholder::allocate_lowest(task) {
        Ok(number) => number,
        Err(errno) => return errno.to_ret(),
    };
    match open() {
        Ok(Place::Inside(Opened::File(file))) => install(task, number, file, how.flags),
        Ok(Place::Inside(opened)) => install_other(task, number, opened, how.flags),
        Ok(Place::Outside(outside)) => {
            placeholder::release(task, number);
            leave(outside)
        }
        Err(errno) => not_opened(task, number, errno),
    }
}

#[inline(always)]
pub(super) fn install(
    task: &'static Task<'static>,
    number: Fd,
    opened: lp_region::FileId,
    flags: u32,
) -> isize {
    let cloexec = if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    match table::install(task, number, opened, cloexec) {
        Ok(()) => number.raw() as isize,
        Err(errno) => {
            file::discard(task, opened);
            not_opened(task, number, errno)
        }
    }
}

#[cold]
fn not_opened(task: &'static Task<'static>, number: Fd, errno: Errno) -> isize {
    placeholder::release(task, number);
    shadow_fd::drop_waited();
    interruptible(errno.to_ret())
}

/// [`install`] of a file whose watchers must be notified, or of a node whose data is the kernel's.
#[cold]
fn install_other(task: &'static Task<'static>, number: Fd, opened: Opened, flags: u32) -> isize {
    let file = match opened {
        Opened::File(file) | Opened::Watched(file) | Opened::WatchedCut(file) => file,
        Opened::HostNode(found) => {
            placeholder::release(task, number);
            return node::open(task, &found);
        }
    };
    // Relaxed: immutable while the file is open.
    let inode = InodeRef::from_word(task.region.file(file).inode.load(Ordering::Relaxed)).id;
    let done = install(task, number, file, flags);
    if done >= 0 {
        shadow_fd::open(task, number, flags);
        if matches!(opened, Opened::WatchedCut(_)) {
            watch::touched_slow(task, inode, Touched::Modified);
        }
    }
    done
}

/// What has become of an open of a host path.
enum Host {
    /// The kernel has opened it, or not.
    Done(isize),
    /// A link leads into a mount, by this path. The kernel's result is what it gets without the mount.
    Link(At, isize),
}

/// Opens a host file, unless its path leads through a link into a mount: then the kernel fails.
#[inline(never)]
fn open_host(task: &'static Task<'static>, at: At, how: &How) -> Host {
    let makes = how.makes_behind_link();
    if (makes || thread().meets_no_links.get())
        && let Some(done) = open_without_links(task, at, how)
    {
        return Host::Done(done);
    }
    if makes {
        // The kernel would make a file with the name of a mount.
        return match hostlink::by_links(Which::First, at, how.last()) {
            Some(inside) => Host::Link(inside, Errno::ENOENT.to_ret()),
            None => Host::Done(open_by_kernel(task, at, how)),
        };
    }
    let done = open_by_kernel(task, at, how);
    if !may_be_link(done) {
        return Host::Done(done);
    }
    if !hostlink::meets_link(at, how.last()) {
        thread().meets_no_links.set(true);
        return Host::Done(done);
    }
    match hostlink::by_links(Which::First, at, how.last()) {
        Some(inside) => Host::Link(inside, done),
        None => Host::Done(done),
    }
}

/// Opens a host file, if [`hostlink::straight`] knows the flags, unless a symbolic link is on the way. A
/// search of several directories mostly fails, and this says at once that no link into a mount is the cause.
/// `None` if the kernel has to be asked as the program does.
fn open_without_links(task: &'static Task<'static>, at: At, how: &How) -> Option<isize> {
    if matches!(how.given, Given::How(_)) || lp_abi::sys::is_limited() {
        return None;
    }
    let straight = hostlink::straight(how.flags, how.mode)?;
    let how_given = [(&raw const straight).addr(), size_of::<open_how>()];
    let done = ask(task, at, how, (__NR_openat2, how_given));
    let says = hostlink::met_no_link(done);
    thread().meets_no_links.set(says);
    says.then_some(done)
}

/// Opens what the kernel finds.
pub(super) fn open_by_kernel(task: &'static Task<'static>, at: At, how: &How) -> isize {
    let call = match how.given {
        Given::Nothing | Given::Held(_) => (__NR_openat, [how.flags as usize, how.mode as usize]),
        Given::How(given) => (__NR_openat2, [given.start().addr(), given.len()]),
    };
    ask(task, at, how, call)
}

/// Makes the kernel's call with the path and two more arguments.
fn ask(task: &'static Task<'static>, at: At, how: &How, (nr, [third, fourth]): (u32, [usize; 2])) -> isize {
    placeholder::flush(task);
    let arguments = [at.dirfd.word(), at.path.addr(), third, fourth, 0, 0];
    // Opening a FIFO or a terminal may wait. SAFETY: the program's own call with its own arguments.
    let done = unsafe { deferred::programs_syscall(nr, arguments) };
    if done >= 0 {
        note(task, Fd::new(done as i32), at, how.flags);
    }
    done
}

/// Records what later calls on a host descriptor must know.
fn note(task: &Task, fd: Fd, at: At, flags: u32) {
    parent::opened(fd, at);
    // SAFETY: the copy routine handles bad pointers.
    let word = unsafe { ucopy::word(at.path.as_ptr()) };
    // The working directory may be in /proc.
    match word as u8 != b'/' || may_be_known(word) {
        true => note_known(task, fd, at, flags),
        false => directory::other_opened(fd),
    }
}

/// Names of the files of /proc that are completed, and of a link to one.
const LISTS: [&[u8]; 5] = [b"mountinfo", b"mounts", b"mountstats", b"mtab", b"locks"];

#[cold]
fn note_known(task: &Task, fd: Fd, at: At, flags: u32) {
    let mut text = [0u8; 48];
    // SAFETY: the copy routine handles bad pointers.
    let length = unsafe { ucopy::string(&mut text, at.path.as_ptr()) }.unwrap_or(0);
    if LISTS.iter().any(|name| text[..length].ends_with(name)) {
        complete(task, fd, &text[..length]);
    }
    fd_info::opened(task, fd, &text[..length], flags);
    directory::opened(fd, &text[..length]);
    device::opened(task, fd, &text[..length], flags);
}

/// Completes a list of the kernel's that was opened by `path`, if it is one.
#[inline(never)]
fn complete(task: &Task, fd: Fd, path: &[u8]) {
    let mut room = [0u8; names::ROOM];
    let is_list = mount_table::of_path(path).is_some() || path == lock_table::PATH;
    // A path from a directory, or one that is not straight, says less than the kernel.
    let path = if is_list { path } else { names::of_descriptor(fd, &mut room) };
    if let Some(table) = mount_table::of_path(path) {
        mount_table::complete(task, fd, path, table);
    } else if path == lock_table::PATH {
        lock_table::complete(task, fd);
    }
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
