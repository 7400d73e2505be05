//! mkdir(2), mkdirat(2), rmdir(2), unlink(2), unlinkat(2), mknod(2), mknodat(2).

use lp_abi::linux::{__NR_mkdirat, __NR_mknodat, __NR_unlinkat, AT_REMOVEDIR, S_IFIFO, S_IFMT, S_IFSOCK};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::InodeRef;
use lp_region::sync::Ordering;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::Follow;
use lp_vfs::{mkdir, mknod, unlink, walk};

use crate::high::frame::at::{At, Last, Which, copy_last_component};
use crate::high::frame::handler::{failed_with, handlers, kernel};
use crate::high::route::kernels;
use crate::high::route::path::{flat, one, plainly_ours};
use crate::high::special::node;

handlers! {
    /// mkdir(2).
    fn mkdir(task, path: UserPtr, mode: u32) {
        make_directory(task, At::cwd(path), mode)
    }

    /// mkdirat(2).
    fn mkdirat(task, dirfd: Fd, path: UserPtr, mode: u32) {
        make_directory(task, At { dirfd, path }, mode)
    }

    /// rmdir(2).
    fn rmdir(task, path: UserPtr) {
        remove(task, At::cwd(path), AT_REMOVEDIR)
    }

    /// unlink(2).
    fn unlink(task, path: UserPtr) {
        remove(task, At::cwd(path), 0)
    }

    /// unlinkat(2).
    fn unlinkat(task, dirfd: Fd, path: UserPtr, flags: u32) {
        if flags & !AT_REMOVEDIR != 0 {
            return Errno::EINVAL.to_ret();
        }
        remove(task, At { dirfd, path }, flags)
    }

    /// unlink(2) by a thread that has restricted itself.
    fn unlink_checked(task, path: UserPtr) {
        remove_by(task, At::cwd(path), 0, unlink::unlinkat_checked)
    }

    /// unlinkat(2) by a thread that has restricted itself.
    fn unlinkat_checked(task, dirfd: Fd, path: UserPtr, flags: u32) {
        if flags & !AT_REMOVEDIR != 0 {
            return lp_abi::Errno::EINVAL.to_ret();
        }
        remove_by(task, At { dirfd, path }, flags, unlink::unlinkat_checked)
    }

    /// mknod(2).
    fn mknod(task, path: UserPtr, mode: u32, device: u32) {
        make_node(task, At::cwd(path), mode, device)
    }

    /// mknodat(2).
    fn mknodat(task, dirfd: Fd, path: UserPtr, mode: u32, device: u32) {
        make_node(task, At { dirfd, path }, mode, device)
    }
}

fn make_directory(task: &Task, at: At, mode: u32) -> isize {
    let ours = |at: At| mkdir::mkdirat(task, at.dirfd, at.path, mode);
    one(task, at, Last::Name, ours, |at| kernel!(__NR_mkdirat, at.dirfd, at.path, mode))
}

#[inline(always)]
fn remove(task: &Task, at: At, flags: u32) -> isize {
    if node::any(task) {
        return remove_routed(task, at, flags);
    }
    plainly_ours(task, at, || unlink::unlinkat(task, at.dirfd, at.path, flags))
        .unwrap_or_else(|| remove_routed(task, at, flags))
}

#[inline(never)]
fn remove_routed(task: &Task, at: At, flags: u32) -> isize {
    remove_by(task, at, flags, unlink::unlinkat)
}

/// Removes a name, in the file system by `unlinkat`.
fn remove_by(
    task: &Task,
    at: At,
    flags: u32,
    unlinkat: impl Fn(&Task<'_>, Fd, UserPtr, u32) -> Result<Place<()>>,
) -> isize {
    let host = |at: At| match kernels::names_one(at) {
        true => flat(unlinkat(task, at.dirfd, at.path, flags)).unwrap_or(Errno::EBUSY.to_ret()),
        false => kernel!(__NR_unlinkat, at.dirfd, at.path, flags),
    };
    let ours = |at: At| {
        let node = if node::any(task) { node_at(task, at) } else { None };
        let done = unlinkat(task, at.dirfd, at.path, flags)?;
        if let (Place::Inside(()), Some(inode)) = (done, node)
            && has_no_name(task, inode)
        {
            node::remove(task, inode);
        }
        Ok(done)
    };
    let done = one(task, at, Last::Name, ours, host);
    // A `..` that has led out of a mount is a dot for the kernel.
    let is_dot = failed_with(done, Errno::EINVAL) && flags & AT_REMOVEDIR != 0;
    if is_dot && copy_last_component(Which::First, at) == b".." { Errno::ENOTEMPTY.to_ret() } else { done }
}

/// The FIFO or socket at a path, if the path is its only name.
#[cold]
fn node_at(task: &Task, at: At) -> Option<InodeRef> {
    let Ok(Place::Inside(found)) = walk::inode(task, at.dirfd, at.path, Follow::No) else { return None };
    let inode = task.region.inode(found.inode.id);
    // Relaxed, both: a hint; a leftover object does no harm.
    let kind = inode.mode.load(Ordering::Relaxed) & S_IFMT;
    (matches!(kind, S_IFIFO | S_IFSOCK) && inode.nlink.load(Ordering::Relaxed) == 1).then_some(found.inode)
}

/// Whether an inode is gone, or has no name. The one that was removed may have been another's: its last name
/// may have been moved, and a new file made in its place, since [`node_at`].
fn has_no_name(task: &Task, inode: InodeRef) -> bool {
    let record = task.region.inode(inode.id);
    // Relaxed, both: a leftover object does no harm.
    record.nlink.load(Ordering::Relaxed) == 0 || record.generation.load(Ordering::Relaxed) != inode.generation
}

/// mknod(2). The host object of a FIFO or socket is created when it is first opened or bound.
fn make_node(task: &Task, at: At, mode: u32, device: u32) -> isize {
    let ours = |at: At| mknod::mknodat(task, at.dirfd, at.path, mode, device);
    one(task, at, Last::Name, ours, |at| kernel!(__NR_mknodat, at.dirfd, at.path, mode, device))
}
