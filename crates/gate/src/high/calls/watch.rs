//! Calls that Lightpath does not support on files of ours: fanotify(7), swap, accounting. They fail as on a
//! file system without these features; docs/differences.md lists them.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, UserPtr};

use crate::high::calls::refused::{at_path, on_file};
use crate::high::fd::descriptor;
use crate::high::frame::at::{At, EMPTY};
use crate::high::frame::handler::{failed_with, handlers, kernel};
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// fanotify_mark(2).
    fn fanotify_mark(task, fd: Fd, flags: u32, mask: u64, dirfd: Fd, path: UserPtr) {
        // The kernel looks at the path last. It finds none, unless something else is wrong; for a flush it
        // needs none.
        let before = kernel!(__NR_fanotify_mark, fd, flags, mask, Fd::CWD, EMPTY);
        let is_ours = descriptor::is_file(task, fd);
        if is_ours && failed_with(before, Errno::EBADF) {
            return on_file(task, fd, Errno::EINVAL).unwrap_or(before);
        }
        if !failed_with(before, Errno::ENOENT) {
            return before;
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
