//! Calls on files of ours that Lightpath does not have: fanotify(7), file handles, swap, accounting, mounts.
//! They fail as on a file system without them; docs/differences.md lists them.

use lp_abi::Errno;
use lp_abi::linux::*;

use crate::high::calls::refused::{at_path, concerns, mentions_mount, on_file};
use crate::high::calls::stat::is_empty;
use crate::high::fd::descriptor;
use crate::high::frame::at::At;
use crate::high::frame::handler::{handlers, kernel};
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// fanotify_mark(2).
    fn fanotify_mark(task, fd: i32, flags: u32, mask: u64, dirfd: i32, path: *const u8) {
        if let Some(refused) = on_file(task, fd, Errno::EINVAL) {
            return refused;
        }
        if path.is_null() {
            return if descriptor::is_listed(task, dirfd) { Errno::ENODEV.to_ret() } else { NOT_OURS };
        }
        let host = |at: At| kernel!(__NR_fanotify_mark, fd, flags, mask, at.dirfd, at.path);
        at_path(task, At { dirfd, path }, 0, Errno::ENODEV, host)
    }

    /// name_to_handle_at(2).
    fn name_to_handle_at(task, dirfd: i32, path: *const u8, handle: usize, mount: usize, flags: u32) {
        let links = if flags & AT_SYMLINK_FOLLOW != 0 { 0 } else { AT_SYMLINK_NOFOLLOW };
        let host = |at: At| kernel!(__NR_name_to_handle_at, at.dirfd, at.path, handle, mount, flags);
        at_path(task, At { dirfd, path }, flags & AT_EMPTY_PATH | links, Errno::EOPNOTSUPP, host)
    }

    /// swapon(2).
    fn swapon(task, path: *const u8, flags: u32) {
        at_path(task, At::cwd(path), 0, Errno::EINVAL, |at| kernel!(__NR_swapon, at.path, flags))
    }

    /// acct(2).
    fn acct(task, path: *const u8) {
        if path.is_null() {
            return NOT_OURS;
        }
        at_path(task, At::cwd(path), 0, Errno::EACCES, |at| kernel!(__NR_acct, at.path))
    }

    /// umount2(2): a mount of ours ends with the run.
    fn umount2(task, path: *const u8, flags: u32) {
        at_path(task, At::cwd(path), 0, Errno::EBUSY, |at| kernel!(__NR_umount2, at.path, flags))
    }

    /// mount(2): onto a directory of ours nothing can be mounted, and nothing of ours elsewhere.
    fn mount(task, source: *const u8, path: *const u8, kind: usize, flags: usize, data: *const u8) {
        let from_ours = !source.is_null() && concerns(task, At::cwd(source)) && !is_empty(source);
        if from_ours || mentions_mount(data) {
            return Errno::EPERM.to_ret();
        }
        let host = |at: At| kernel!(__NR_mount, source, at.path, kind, flags, data);
        at_path(task, At::cwd(path), 0, Errno::EPERM, host)
    }

    /// open_tree(2).
    fn open_tree(task, dirfd: i32, path: *const u8, flags: u32) {
        crate::high::fd::placeholder::flush(task);
        let host = |at: At| kernel!(__NR_open_tree, at.dirfd, at.path, flags);
        at_path(task, At { dirfd, path }, flags, Errno::EPERM, host)
    }
}
