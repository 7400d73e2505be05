//! access(2), faccessat(2), faccessat2(2).

use lp_abi::linux::{
    AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFBLK, S_IFCHR, S_IFIFO, S_IFMT, S_IFREG, S_IFSOCK,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::mount::mount_flags;
use lp_region::process::Process;
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{MountId, Spot};

use crate::caller::identity;
use crate::caller::task::{Outside, Place, Task};
use crate::calls::target;
use crate::lane::writer;
use crate::names::mounts;
use crate::names::walk::{self, Follow, PathBuffer};
use crate::rights::credentials::Identity;
use crate::rights::permission::{self, EXEC, WRITE};

/// Checks that the caller may read, write or execute what a path names. `mode` 0 checks that it exists.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for an unknown mode or flag; `EACCES`, `EROFS`, `EPERM`.
#[inline]
pub fn faccessat(task: &Task<'_>, dirfd: Fd, path: UserPtr, mode: u32, flags: u32) -> Result<Place<()>> {
    if mode & !7 != 0 || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & AT_EMPTY_PATH != 0 && walk::is_empty(path)? {
        return descriptor(task, dirfd, mode, flags);
    }
    let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { Follow::No } else { Follow::Link };
    let text = match walk::copy_path(task, PathBuffer::Path, path) {
        Ok(text) => text,
        Err(errno) => return not_found(task, dirfd, path, (mode, flags), errno),
    };
    // What everyone may search is the same to the real user.
    match walk::in_known(task, dirfd, text, follow) {
        Some(Ok(found)) => {
            let record = task.region.inode(found.inode.id);
            let answer = check(task, record, found.mount, mode, flags);
            // Acquire: a generation is incremented before its slot is reused.
            if record.generation.load(Ordering::Acquire) == found.inode.generation {
                return answer.map(Place::Inside);
            }
        }
        Some(Err(errno)) => return not_found(task, dirfd, path, (mode, flags), errno),
        None => {}
    }
    by_walk(task, dirfd, path, mode, flags)
}

/// [`faccessat`] of any path.
#[inline(never)]
fn by_walk(task: &Task<'_>, dirfd: Fd, path: UserPtr, mode: u32, flags: u32) -> Result<Place<()>> {
    let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { Follow::No } else { Follow::Link };
    let walk = || walk::inode_of(task, dirfd, walk::copy_path(task, PathBuffer::Path, path)?, follow);
    let real = Identity::real(task);
    let is_same = flags & AT_EACCESS != 0 || real == Identity::of(task.credentials.get());
    // The kernel's access_override_creds.
    let as_real = |own: &Process| {
        // Relaxed: the call's own.
        own.fsuid.store(real.uid, Ordering::Relaxed);
        own.fsgid.store(real.gid, Ordering::Relaxed);
        own.caps.store(real.caps, Ordering::Relaxed);
    };
    for _ in 0..walk::TRIES {
        let found = match if is_same { walk() } else { identity::call_with(task, as_real, walk) } {
            Ok(Place::Inside(found)) => found,
            Ok(Place::Outside(outside)) => return Ok(Place::Outside(outside)),
            Err(errno) => return not_found(task, dirfd, path, (mode, flags), errno),
        };
        let record = task.region.inode(found.inode.id);
        let answer = check(task, record, found.mount, mode, flags);
        if record.generation.load(Ordering::Acquire) == found.inode.generation {
            return answer.map(Place::Inside);
        }
    }
    Err(Errno::ESTALE)
}

/// The path names nothing, unless it stands for the descriptor itself.
#[cold]
fn not_found(
    task: &Task<'_>,
    fd: Fd,
    path: UserPtr,
    (mode, flags): (u32, u32),
    errno: Errno,
) -> Result<Place<()>> {
    if target::is_itself(path) { descriptor(task, fd, mode, flags) } else { Err(errno) }
}

#[cold]
fn descriptor(task: &Task<'_>, fd: Fd, mode: u32, flags: u32) -> Result<Place<()>> {
    if fd == Fd::CWD {
        let cwd = task.directories.get().cwd.load(Ordering::Relaxed); // Relaxed: one word, as seen.
        if cwd == 0 {
            return Ok(Place::Outside(Outside::AsGiven));
        }
        let cwd = Spot::from_word(cwd);
        return check(task, task.region.inode(cwd.inode.id), cwd.mount, mode, flags).map(Place::Inside);
    }
    match task.fget_any(fd) {
        Ok(held) => check(task, held.inode, held.mount(), mode, flags).map(Place::Inside),
        Err(_) => Ok(Place::Outside(Outside::AsGiven)),
    }
}

#[inline]
fn check(task: &Task<'_>, inode: &Inode, mount: MountId, mode: u32, flags: u32) -> Result<()> {
    if mode == 0 {
        return Ok(());
    }
    let is_regular = || inode.mode.load(Ordering::Relaxed) & S_IFMT == S_IFREG;
    if mode & EXEC != 0 && mounts::has(task, mount, mount_flags::NOEXEC) && is_regular() {
        return Err(Errno::EACCES);
    }
    if mode & WRITE != 0 && writer::is_read_only(task, mount) {
        return check_read_only_slow(task, inode, mount, mode, flags);
    }
    may(task, inode, mode, flags)
}

/// [`check`] for writing in a read-only mount: the kernel looks at the file system before the permissions and
/// at the mount after them.
#[cold]
fn check_read_only_slow(task: &Task<'_>, inode: &Inode, mount: MountId, mode: u32, flags: u32) -> Result<()> {
    // Devices, FIFOs and sockets may be written on a read-only file system.
    let kind = inode.mode.load(Ordering::Relaxed) & S_IFMT;
    let is_special = matches!(kind, S_IFBLK | S_IFCHR | S_IFIFO | S_IFSOCK);
    if !is_special && mounts::has(task, mount, mount_flags::SB_READ_ONLY) {
        return Err(Errno::EROFS);
    }
    may(task, inode, mode, flags)?;
    if is_special { Ok(()) } else { Err(Errno::EROFS) }
}

/// Whether the inode's permissions allow it.
#[inline]
fn may(task: &Task<'_>, inode: &Inode, mode: u32, flags: u32) -> Result<()> {
    if flags & AT_EACCESS != 0 {
        return permission::check(task, inode, mode);
    }
    // Relaxed, like `permission::check`: what everybody may do, the real user may do.
    let everyone = (mode * 0o111) & !inode.mode.load(Ordering::Relaxed) == 0;
    if everyone && mode & WRITE == 0 && inode.acl.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    permission::check_as(task, inode, mode, Identity::real(task))
}
