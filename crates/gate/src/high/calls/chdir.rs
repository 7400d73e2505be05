//! chdir(2), fchdir(2), getcwd(2), chroot(2).

use lp_abi::linux::{__NR_chdir, __NR_chroot, __NR_fchdir, AT_FDCWD};
use lp_abi::{Errno, Result};
use lp_region::sync::Ordering;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::Follow;
use lp_vfs::{chdir, getcwd, walk};

use crate::high::fd::descriptor;
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::route::path::one;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// chdir(2): the kernel's working directory does not change while ours is in a mount.
    fn chdir(task, path: *const u8) {
        let ours = |at: At| chdir_at(task, at);
        let host = |at: At| left(task, kernel!(__NR_chdir, at.path));
        one(task, At::cwd(path), Last::Follow, ours, host)
    }

    /// fchdir(2).
    fn fchdir(task, fd: i32) {
        if descriptor::is_listed(task, fd) {
            return ret(chdir::fchdir(task, fd));
        }
        if descriptor::is_hidden(task, fd) {
            return Errno::EBADF.to_ret();
        }
        left(task, kernel!(__NR_fchdir, fd))
    }

    /// getcwd(2).
    fn getcwd(task, to: *mut u8, size: usize) {
        // Relaxed: the process's own word.
        if task.process.cwd.load(Ordering::Relaxed) == 0 {
            return NOT_OURS;
        }
        match getcwd::getcwd(task, to, size) {
            Ok(None) => NOT_OURS,
            Ok(Some(length)) => length as isize,
            Err(errno) => errno.to_ret(),
        }
    }

    /// chroot(2) into a mount is impossible, because the kernel would have to know the directory.
    fn chroot(task, path: *const u8) {
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
    if at.dirfd == AT_FDCWD {
        return chdir::chdir(task, at.path);
    }
    let found = match walk::inode(task, at.dirfd, at.path, Follow::Link)? {
        Place::Inside(found) => found,
        Place::Outside(outside) => return Ok(Place::Outside(outside)),
    };
    let path = getcwd::of_directory(task, found.spot())?.as_ptr();
    chdir::chdir(task, path)
}

/// After the kernel has changed its working directory, the process's is the host's.
fn left(task: &Task, done: isize) -> isize {
    if done >= 0 {
        chdir::left(task);
    }
    done
}
