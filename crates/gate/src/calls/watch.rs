//! Calls on files of ours that Lightpath does not have: inotify(7), fanotify(7), file handles, swap, accounting, mounts.
//! They fail as on a file system without them; docs/differences.md lists them.

use lp_abi::Errno;
use lp_abi::linux::*;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk;

use super::chmod::last_of;
use super::handler::{handlers, kernel};
use crate::descriptor;
use crate::dispatch::NOT_OURS;
use crate::path::{At, Last, one};

handlers! {
    /// inotify_add_watch(2).
    fn inotify_add_watch(task, fd: i32, path: *const u8, mask: u32) {
        let last = if mask & IN_DONT_FOLLOW != 0 { Last::Link } else { Last::Follow };
        refused(task, At::cwd(path), last, Errno::ENOSPC, |at| kernel!(__NR_inotify_add_watch, fd, at.path, mask))
    }

    /// fanotify_mark(2).
    fn fanotify_mark(task, fd: i32, flags: u32, mask: u64, dirfd: i32, path: *const u8) {
        if path.is_null() {
            return if descriptor::is_listed(task, dirfd) { Errno::ENODEV.to_ret() } else { NOT_OURS };
        }
        let host = |at: At| kernel!(__NR_fanotify_mark, fd, flags, mask, at.dirfd, at.path);
        refused(task, At { dirfd, path }, Last::Follow, Errno::ENODEV, host)
    }

    /// name_to_handle_at(2).
    fn name_to_handle_at(task, dirfd: i32, path: *const u8, handle: usize, mount: usize, flags: u32) {
        if flags & AT_EMPTY_PATH != 0 && descriptor::is_listed(task, dirfd) && super::stat::is_empty(path) {
            return Errno::EOPNOTSUPP.to_ret();
        }
        let last = if flags & AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::Link };
        let host = |at: At| kernel!(__NR_name_to_handle_at, at.dirfd, at.path, handle, mount, flags);
        refused(task, At { dirfd, path }, last, Errno::EOPNOTSUPP, host)
    }

    /// swapon(2), swapoff(2), acct(2), umount2(2), pivot_root(2), uselib(2): of a path of ours.
    fn swapon(task, path: *const u8, flags: u32) {
        refused(task, At::cwd(path), Last::Follow, Errno::EINVAL, |at| kernel!(__NR_swapon, at.path, flags))
    }

    /// acct(2).
    fn acct(task, path: *const u8) {
        if path.is_null() {
            return NOT_OURS;
        }
        refused(task, At::cwd(path), Last::Follow, Errno::EACCES, |at| kernel!(__NR_acct, at.path))
    }

    /// umount2(2): a mount of ours ends with the run.
    fn umount2(task, path: *const u8, flags: u32) {
        refused(task, At::cwd(path), last_of(0), Errno::EBUSY, |at| kernel!(__NR_umount2, at.path, flags))
    }

    /// mount(2): onto a directory of ours nothing can be mounted.
    fn mount(task, source: usize, path: *const u8, kind: usize, flags: usize, data: usize) {
        let host = |at: At| kernel!(__NR_mount, source, at.path, kind, flags, data);
        refused(task, At::cwd(path), Last::Follow, Errno::EPERM, host)
    }

    /// open_tree(2).
    fn open_tree(task, dirfd: i32, path: *const u8, flags: u32) {
        crate::placeholder::flush(task);
        let host = |at: At| kernel!(__NR_open_tree, at.dirfd, at.path, flags);
        refused(task, At { dirfd, path }, Last::Follow, Errno::EPERM, host)
    }
}

/// Fails with `errno` for what exists in a mount, with the walk's own error for what does not.
fn refused(task: &Task, at: At, last: Last, errno: Errno, host: impl Fn(At) -> isize) -> isize {
    let follow = if last == Last::Follow { walk::Follow::Link } else { walk::Follow::No };
    let ours = |at: At| match walk::inode(task, at.dirfd, at.path, follow)? {
        Place::Inside(_) => Err(errno),
        Place::Outside(outside) => Ok(Place::<()>::Outside(outside)),
    };
    one(task, at, last, ours, host)
}
