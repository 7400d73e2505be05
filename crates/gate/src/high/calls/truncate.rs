//! truncate(2), ftruncate(2), fallocate(2).

use lp_abi::linux::__NR_truncate;
use lp_abi::{Errno, Fd, UserPtr};
use lp_vfs::{fallocate, truncate};

use crate::high::fd::descriptor::file_or_return;
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{exceeded_slow, handlers, interruptible, kernel, ret_limited};
use crate::high::memory::resize;
use crate::high::route::path::one;

handlers! {
    /// truncate(2).
    fn truncate(task, path: UserPtr, length: i64) {
        let ours = |at: At| {
            truncate::truncate(task, at.dirfd, at.path, length).inspect_err(|errno| {
                if *errno == Errno::EFBIG {
                    exceeded_slow(task);
                }
            })
        };
        let done = one(task, At::cwd(path), Last::Follow, ours, |at| kernel!(__NR_truncate, at.path, length));
        resize::resized(task);
        interruptible(done) // It waits for a lease.
    }

    /// ftruncate(2).
    fn ftruncate(task, fd: Fd, length: i64) {
        file_or_return!(task, fd);
        let done = ret_limited(task, truncate::ftruncate(task, fd, length));
        resize::resized(task);
        done
    }

    /// fallocate(2).
    fn fallocate(task, fd: Fd, mode: u32, offset: i64, length: i64) {
        file_or_return!(task, fd);
        let done = ret_limited(task, fallocate::fallocate(task, fd, mode, offset, length));
        resize::resized(task);
        done
    }
}
