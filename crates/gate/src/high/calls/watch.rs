//! Calls that Lightpath does not support on files of ours: fanotify(7), swap, accounting. They fail as on a
//! file system without these features; docs/differences.md lists them.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, UserPtr};

use crate::high::calls::refused::at_path;
use crate::high::fd::descriptor;
use crate::high::fd::stand_in::stand_in_returns;
use crate::high::frame::at::At;
use crate::high::frame::handler::{handlers, kernel};
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// fanotify_mark(2).
    fn fanotify_mark(task, fd: Fd, flags: u32, mask: u64, dirfd: Fd, path: UserPtr) {
        stand_in_returns!(task, fd, __NR_fanotify_mark, flags, mask, dirfd, path);
        // The kernel looks at the path last.
        let first = kernel!(__NR_fanotify_mark, fd, flags, mask, Fd::CWD, c"".as_ptr());
        if first != Errno::ENOENT.to_ret() {
            return first;
        }
        if path.is_null() {
            return if descriptor::is_listed(task, dirfd) { Errno::ENODEV.to_ret() } else { NOT_OURS };
        }
        let host = |at: At| kernel!(__NR_fanotify_mark, fd, flags, mask, at.dirfd, at.path);
        at_path(task, At { dirfd, path }, 0, Errno::ENODEV, host)
    }

    /// swapon(2).
    fn swapon(task, path: UserPtr, flags: u32) {
        at_path(task, At::cwd(path), 0, Errno::EINVAL, |at| kernel!(__NR_swapon, at.path, flags))
    }

    /// acct(2).
    fn acct(task, path: UserPtr) {
        if path.is_null() {
            return NOT_OURS;
        }
        at_path(task, At::cwd(path), 0, Errno::EACCES, |at| kernel!(__NR_acct, at.path))
    }
}
