//! chmod(2), fchmod(2), fchmodat(2), fchmodat2(2), chown(2), lchown(2), fchown(2), fchownat(2).

use lp_abi::linux::{__NR_fchmodat, __NR_fchmodat2, __NR_fchownat, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, UserPtr};
use lp_vfs::task::Task;
use lp_vfs::{chmod, chown};

use crate::high::fd::descriptor::listed_or_return;
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::route::path::one;

handlers! {
    /// chmod(2).
    fn chmod(task, path: UserPtr, mode: u32) {
        change_mode(task, At::cwd(path), mode, 0)
    }

    /// fchmodat(2): the kernel's call takes no flags.
    fn fchmodat(task, dirfd: Fd, path: UserPtr, mode: u32) {
        change_mode(task, At { dirfd, path }, mode, 0)
    }

    /// fchmodat2(2).
    fn fchmodat2(task, dirfd: Fd, path: UserPtr, mode: u32, flags: u32) {
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Errno::EINVAL.to_ret();
        }
        change_mode(task, At { dirfd, path }, mode, flags)
    }

    /// fchmod(2).
    fn fchmod(task, fd: Fd, mode: u32) {
        listed_or_return!(task, fd);
        ret(chmod::fchmod(task, fd, mode))
    }

    /// chown(2).
    fn chown(task, path: UserPtr, owner: u32, group: u32) {
        change_owner(task, At::cwd(path), owner, group, 0)
    }

    /// lchown(2).
    fn lchown(task, path: UserPtr, owner: u32, group: u32) {
        change_owner(task, At::cwd(path), owner, group, AT_SYMLINK_NOFOLLOW)
    }

    /// fchownat(2).
    fn fchownat(task, dirfd: Fd, path: UserPtr, owner: u32, group: u32, flags: u32) {
        if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
            return Errno::EINVAL.to_ret();
        }
        change_owner(task, At { dirfd, path }, owner, group, flags)
    }

    /// fchown(2).
    fn fchown(task, fd: Fd, owner: u32, group: u32) {
        listed_or_return!(task, fd);
        ret(chown::fchown(task, fd, owner, group))
    }
}

/// How AT_SYMLINK_NOFOLLOW treats the last component.
pub(crate) fn last_of(flags: u32) -> Last {
    if flags & AT_SYMLINK_NOFOLLOW != 0 { Last::Link } else { Last::Follow }
}

fn change_mode(task: &Task, at: At, mode: u32, flags: u32) -> isize {
    let ours = |at: At| chmod::fchmodat(task, at.dirfd, at.path, mode, flags);
    // Kernels before 6.6 have only the call without flags.
    let host = |at: At| match flags {
        0 => kernel!(__NR_fchmodat, at.dirfd, at.path, mode),
        _ => kernel!(__NR_fchmodat2, at.dirfd, at.path, mode, flags),
    };
    one(task, at, last_of(flags), ours, host)
}

fn change_owner(task: &Task, at: At, owner: u32, group: u32, flags: u32) -> isize {
    let ours = |at: At| chown::fchownat(task, at.dirfd, at.path, owner, group, flags);
    one(task, at, last_of(flags), ours, |at| kernel!(__NR_fchownat, at.dirfd, at.path, owner, group, flags))
}
