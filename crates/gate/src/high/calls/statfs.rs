//! statfs(2), fstatfs(2).

use lp_abi::linux::{__NR_statfs, statfs};
use lp_abi::{Fd, UserPtr};
use lp_vfs::statfs as usage;

use crate::high::fd::descriptor::listed_or_return;
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::route::path::one;

handlers! {
    /// statfs(2).
    fn statfs(task, path: UserPtr, to: UserPtr<statfs>) {
        let ours = |at: At| usage::statfs(task, at.dirfd, at.path, to);
        one(task, At::cwd(path), Last::Follow, ours, |at| kernel!(__NR_statfs, at.path, to))
    }

    /// fstatfs(2).
    fn fstatfs(task, fd: Fd, to: UserPtr<statfs>) {
        listed_or_return!(task, fd);
        ret(usage::fstatfs(task, fd, to))
    }
}
