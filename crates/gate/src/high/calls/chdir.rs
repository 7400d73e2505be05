//! chdir(2), fchdir(2), getcwd(2), chroot(2).

use lp_abi::linux::{__NR_chdir, __NR_chroot, __NR_fchdir, __NR_getcwd};
use lp_abi::{Errno, Fd, Result, UserPtr, UserSlice};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::task::{Place, Task};
use lp_vfs::{chdir, getcwd, root, target};

use crate::high::fd::descriptor;
use crate::high::frame::at::{At, Last, spare_buffer};
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::life::task::block_prefixes;
use crate::high::life::way;
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
        // Relaxed: one word, as seen.
        if task.directories.get().cwd.load(Ordering::Relaxed) == 0 {
            return if root::of(task).is_some() { unreachable(to) } else { NOT_OURS };
        }
        match getcwd::getcwd(task, to) {
            Ok(None) => NOT_OURS,
            Ok(Some(length)) => length as isize,
            Err(errno) => errno.to_ret(),
        }
    }

    /// chroot(2): the kernel's root directory does not change while ours is in a mount.
    fn chroot(task, path: UserPtr) {
        way::before_losing(task);
        let ours = |at: At| {
            let done = chdir::chroot(task, at.dirfd, at.path)?;
            if let Place::Inside(()) = done {
                block_prefixes();
            }
            Ok(done)
        };
        let host = |at: At| {
            let done = kernel!(__NR_chroot, at.path);
            if done >= 0 {
                chdir::root_left(task);
            }
            done
        };
        one(task, At::cwd(path), Last::Follow, ours, host)
    }
}

/// getcwd(2) in a host directory while the root directory is in a mount.
#[cold]
fn unreachable(to: UserSlice) -> isize {
    const UNREACHABLE: &[u8] = b"(unreachable)";
    let text = spare_buffer();
    text[..UNREACHABLE.len()].copy_from_slice(UNREACHABLE);
    let rest = &mut text[UNREACHABLE.len()..];
    let done = kernel!(__NR_getcwd, rest.as_mut_ptr(), rest.len());
    if done < 0 {
        return done;
    }
    let skip = if rest[0] == b'/' { 0 } else { UNREACHABLE.len() };
    let text = &text[skip..UNREACHABLE.len() + done as usize];
    if text.len() > to.len() {
        return Errno::ERANGE.to_ret();
    }
    // SAFETY: the text is as long; the copy routine handles bad pointers.
    ret(unsafe { ucopy::copy(to.start().as_ptr(), text.as_ptr(), text.len()) }.map(|()| text.len()))
}

/// A magic link may have made the path one relative to a descriptor.
fn chdir_at(task: &Task, at: At) -> Result<Place<()>> {
    if target::is_itself(at.path) {
        return chdir::fchdir(task, at.dirfd).map(Place::Inside);
    }
    chdir::chdir_from(task, at.dirfd, at.path)
}

/// After the kernel has changed its working directory, the process's is the host's.
fn left(task: &Task, done: isize) -> isize {
    if done >= 0 {
        chdir::left(task);
    }
    done
}
