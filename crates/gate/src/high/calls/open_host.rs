//! Opens of host files, by the kernel.

use lp_abi::linux::{__NR_openat, __NR_openat2, open_how};
use lp_abi::{Errno, Fd};
use lp_region::ucopy;
use lp_vfs::task::Task;

use crate::high::calls::open_how::{Given, How};
use crate::high::fd::{device, directory, fd_info, parent, placeholder};
use crate::high::frame::at::{At, Which};
use crate::high::frame::handler::thread;
use crate::high::route::hostlink;
use crate::high::route::path::may_be_link;
use crate::high::run::mounts::may_be_known;
use crate::high::run::{lock_table, mount_table};
use crate::low::live::deferred;
use crate::low::tools::names;

/// What has become of an open of a host path.
pub(super) enum Host {
    /// The kernel has opened it, or not.
    Done(isize),
    /// A link leads into a mount, by this path. The kernel's result is what it gets without the mount.
    Link(At, isize),
}

/// Opens a host file, unless its path leads through a link into a mount: then the kernel fails.
#[inline(never)]
pub(super) fn open_host(task: &'static Task<'static>, at: At, how: &How) -> Host {
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
pub(super) fn open_without_links(task: &'static Task<'static>, at: At, how: &How) -> Option<isize> {
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
