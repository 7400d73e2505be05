//! chdir(2), fchdir(2), getcwd(2), chroot(2).

use lp_abi::linux::{__NR_chdir, __NR_chroot, __NR_fchdir};
use lp_abi::{Errno, Fd, Result, UserPtr, UserSlice};
use lp_region::sync::Ordering;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::Follow;
use lp_vfs::{chdir, getcwd, target, walk};

use crate::high::fd::descriptor;
use crate::high::frame::at::{At, Last, path_in};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::route::path::one;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// chdir(2): the kernel's working directory does not change while ours is in a mount.
    fn chdir(task, path: UserPtr) {
        let ours = |at: At| chdir_at(task, at);
        let host = |at: At| left(task, kernel!(__NR_chdir, at.path));
        one(task, At::cwd(path), Last::Follow, ours, host)
    }

    /// fchdir(2).
    fn fchdir(task, fd: Fd) {
        if descriptor::is_listed(task, fd) {
            return ret(chdir::fchdir(task, fd));
        }
        if descriptor::is_hidden(task, fd) {
            return Errno::EBADF.to_ret();
        }
        left(task, kernel!(__NR_fchdir, fd))
    }

    /// getcwd(2).
    fn getcwd(task, to: UserSlice) {
        // Relaxed: the process's own word.
        if task.process.cwd.load(Ordering::Relaxed) == 0 {
            return NOT_OURS;
        }
        match getcwd::getcwd(task, to) {
            Ok(None) => NOT_OURS,
            Ok(Some(length)) => length as isize,
            Err(errno) => errno.to_ret(),
        }
    }

    /// chroot(2) into a mount is impossible, because the kernel would have to know the directory.
    fn chroot(task, path: UserPtr) {
        // No directory of ours can be the kernel's root.
        let ours = |at: At| match walk::inode(task, at.dirfd, at.path, Follow::Link)? {
            Place::Outside(outside) => Ok::<Place<()>, Errno>(Place::Outside(outside)),
            Place::Inside(found) => Err(match lp_vfs::dir::is(task.region.inode(found.inode.id)) {
                true => Errno::EPERM,
                false => Errno::ENOTDIR,
            }),
        };
        one(task, At::cwd(path), Last::Follow, ours, |at| kernel!(__NR_chroot, at.path))
    }
}

/// A magic link may have made the path one relative to a descriptor.
fn chdir_at(task: &Task, at: At) -> Result<Place<()>> {
    if at.dirfd == Fd::CWD {
        return chdir::chdir(task, at.path);
    }
    if target::is_itself(at.path) {
        return chdir::fchdir(task, at.dirfd).map(Place::Inside);
    }
    let found = match walk::inode(task, at.dirfd, at.path, Follow::Link)? {
        Place::Inside(found) => found,
        Place::Outside(outside) => return Ok(Place::Outside(outside)),
    };
    chdir::chdir(task, path_in(getcwd::of_directory(task, found.spot())?))
}

/// After the kernel has changed its working directory, the process's is the host's.
fn left(task: &Task, done: isize) -> isize {
    if done >= 0 {
        chdir::left(task);
    }
    done
}
