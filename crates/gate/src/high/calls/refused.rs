//! Calls that take a path or a descriptor and are not supported on files of ours. They fail as on a file
//! without the feature, and never reach the kernel with a path of ours or a placeholder.
//!
//! `crates/gate/tests/call_table.rs` checks [`crate::high::table::calls::CALLS`] against the whole call
//! table.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, PATH_MAX, UserPtr};
use lp_region::ucopy;
use lp_vfs::task::{Place, Task};
use lp_vfs::{move_mount, walk};

use crate::high::calls::across;
use crate::high::fd::stand_in::stand_in_returns;
use crate::high::fd::{descriptor, own_descriptor, placeholder, rights};
use crate::high::frame::at::{At, Last, Which, buffer};
use crate::high::frame::handler::{given, handlers, kernel};
use crate::high::life::way;
use crate::high::route::path::{is_base_ours, may_be_ours, one};
use crate::high::run::mounts::mounts;
use crate::low::dispatch::NOT_OURS;
use crate::low::tools::close::close_number;

/// `BPF_OBJ_PIN` and `BPF_OBJ_GET` of linux/bpf.h.
const BPF_WITH_PATH: [u32; 2] = [6, 7];
/// Prefixes of the links in `/proc/self/fd` for the region, for placeholders and for io_uring instances.
const UNTOUCHABLE: [&[u8]; 2] = [b"/memfd:lightpath", b"anon_inode:[io_uring]"];

/// A call that does not exist in a run: io_uring(7), whose work bypasses the gate; and calls newer than the
/// gate.
pub(crate) unsafe extern "sysv64" fn absent(
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    Errno::ENOSYS.to_ret()
}

handlers! {
    /// quotactl_fd(2): the kernel takes an `O_PATH` descriptor, and the placeholder's file system has no
    /// quotas either.
    fn quotactl_fd(task, fd: Fd) {
        descriptor::other(task, fd)
    }

    /// finit_module(2).
    fn finit_module(task, fd: Fd) {
        on_file(task, fd, Errno::ENOEXEC).unwrap_or_else(|| descriptor::other(task, fd))
    }

    /// pivot_root(2).
    fn pivot_root(task, new: UserPtr, old: UserPtr) {
        let ours = concerns(task, At::cwd(new)) || concerns(task, At::cwd(old));
        if ours {
            return not_as_root(task, [new, old]);
        }
        way::before_losing(task);
        NOT_OURS
    }

    /// quotactl(2).
    fn quotactl(task, command: u32, special: UserPtr, id: u32, address: usize) {
        let host = |at: At| kernel!(__NR_quotactl, command, at.path, id, address);
        at_path(task, At::cwd(special), 0, Errno::ENOTBLK, host)
    }

    /// swapoff(2).
    fn swapoff(task, path: UserPtr) {
        at_path(task, At::cwd(path), 0, Errno::EINVAL, |at| kernel!(__NR_swapoff, at.path))
    }

    /// uselib(2).
    fn uselib(task, path: UserPtr) {
        at_path(task, At::cwd(path), 0, Errno::ENOSYS, |at| kernel!(__NR_uselib, at.path))
    }

    /// bpf(2): two of its commands take a path.
    fn bpf(task, command: u32, attributes: *const usize, size: u32) {
        placeholder::flush(task);
        if BPF_WITH_PATH.contains(&command) {
            // SAFETY: the copy routine handles bad pointers. The path is the first word.
            let path = unsafe { ucopy::get(attributes) };
            if path.is_ok_and(|path| concerns(task, At::cwd(given(path)))) {
                return Errno::EPERM.to_ret();
            }
        }
        NOT_OURS
    }

    /// pidfd_getfd(2) must not fetch a placeholder alone, or an io_uring instance. The region and its life file
    /// are not even fetched, because closing the life file drops the record lock.
    fn pidfd_getfd(task, pidfd: Fd, fd: Fd, flags: u32) {
        placeholder::flush(task);
        stand_in_returns!(task, pidfd, __NR_pidfd_getfd, fd, flags);
        if own_descriptor::is_target(task.region, pidfd, fd) {
            return Errno::EBADF.to_ret();
        }
        let got = kernel!(__NR_pidfd_getfd, pidfd, fd, flags);
        if got >= 0 && is_untouchable(Fd::new(got as i32)) {
            close_number(Fd::new(got as i32));
            return Errno::EPERM.to_ret();
        }
        if got >= 0
            && let Err(errno) = rights::fetched(task, Fd::new(got as i32), pidfd, fd)
        {
            close_number(Fd::new(got as i32));
            return errno.to_ret();
        }
        got
    }
}

/// The result of a call on descriptor `fd` if that is a file of ours: `EBADF` if it was opened with `O_PATH`,
/// else `errno`.
pub(crate) fn on_file(task: &Task, fd: Fd, errno: Errno) -> Option<isize> {
    let refused = |errno: Errno| Some(errno.to_ret());
    match descriptor::is_file(task, fd) {
        true if descriptor::is_path(task, fd) => refused(Errno::EBADF),
        true => refused(errno),
        false => None,
    }
}

/// Fails with `errno` if the path exists in a mount, with the walk's own error if it is missing there; else
/// makes the host's call.
pub(crate) fn at_path(task: &Task, at: At, flags: u32, errno: Errno, host: impl Fn(At) -> isize) -> isize {
    if flags & AT_EMPTY_PATH != 0
        && crate::high::calls::stat::is_empty(at.path)
        && is_base_ours(task, at.dirfd)
    {
        return errno.to_ret();
    }
    let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { walk::Follow::No } else { walk::Follow::Link };
    let ours = |at: At| match walk::inode(task, at.dirfd, at.path, follow)? {
        Place::Inside(_) => Err(errno),
        Place::Outside(outside) => Ok(Place::<()>::Outside(outside)),
    };
    one(task, at, crate::high::calls::chmod::last_of(flags), ours, host)
}

/// pivot_root(2) with a path of ours: what is wrong with the paths, or that the first is no mount for the
/// kernel.
fn not_as_root(task: &Task, paths: [UserPtr; 2]) -> isize {
    if let Err(errno) = move_mount::may_move(task, 0) {
        return errno.to_ret();
    }
    let failed = paths.into_iter().map(|path| across::directory_at(task, At::cwd(path)));
    failed.into_iter().find(|found| *found != 0).unwrap_or(Errno::EINVAL.to_ret())
}

/// Whether a path, which may be empty or NULL, concerns a mount.
pub(crate) fn concerns(task: &Task, at: At) -> bool {
    if crate::high::calls::stat::is_empty(at.path) {
        return is_base_ours(task, at.dirfd);
    }
    may_be_ours(task, at, Last::Follow)
        || crate::high::route::hostlink::into_mount(Which::First, at, Last::Follow).is_some()
}

/// Whether an option string, as for mount(2), contains an absolute path into a mount.
pub(crate) fn mentions_mount(text: UserPtr) -> bool {
    let room: &mut [u8; PATH_MAX] = buffer(Which::First);
    // SAFETY: the copy routine handles bad pointers.
    let Ok(length) = (unsafe { ucopy::string(room, text.as_ptr()) }) else { return false };
    let mut parts = room[..length].split(|byte| matches!(byte, b',' | b'=' | b':'));
    parts.any(|part| part.first() == Some(&b'/') && mounts().holds(part))
}

/// Whether a kernel descriptor is one of the gate's, or an io_uring instance.
fn is_untouchable(fd: Fd) -> bool {
    let (path, mut target) = (fd.link(), [0u8; 32]);
    // SAFETY: the path is NUL-terminated, and the kernel writes within `target`.
    let got = unsafe { lp_abi::syscall!(__NR_readlink, path.as_ptr(), target.as_mut_ptr(), target.len()) };
    got.is_ok_and(|got| UNTOUCHABLE.iter().any(|name| target[..got].starts_with(name)))
}
