//! access(2), faccessat(2), faccessat2(2).

use lp_abi::linux::{
    AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFBLK, S_IFCHR, S_IFIFO, S_IFMT, S_IFSOCK,
};
use lp_abi::{Errno, Result};
use lp_region::InodeRef;
use lp_region::records::Inode;
use lp_region::sync::Ordering;

use crate::caller::task::{Outside, Place, Task};
use crate::descriptors::table;
use crate::lane::writer;
use crate::names::walk::{self, Follow};
use crate::rights::credentials::Identity;
use crate::rights::permission::{self, WRITE};

/// Whether the caller may read, write or execute what a path names; `mode` 0 asks whether it is there.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for an unknown mode or flag; `EACCES`, `EROFS`, `EPERM`.
#[inline]
pub fn faccessat(task: &Task<'_>, dirfd: i32, path: *const u8, mode: u32, flags: u32) -> Result<Place<()>> {
    if mode & !7 != 0 || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & AT_EMPTY_PATH != 0 && walk::is_empty(path)? {
        return descriptor(task, dirfd, mode, flags);
    }
    let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { Follow::No } else { Follow::Link };
    for _ in 0..walk::TRIES {
        let found = match walk::inode(task, dirfd, path, follow)? {
            Place::Inside(found) => found.inode,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        let answer = check(task, task.region.inode(found.id), mode, flags);
        // Acquire: a generation grows before its slot is used again.
        if task.region.inode(found.id).generation.load(Ordering::Acquire) == found.generation {
            return answer.map(Place::Inside);
        }
    }
    Err(Errno::ESTALE)
}

#[cold]
fn descriptor(task: &Task<'_>, fd: i32, mode: u32, flags: u32) -> Result<Place<()>> {
    if fd == lp_abi::linux::AT_FDCWD {
        let cwd = task.process.cwd.load(Ordering::Relaxed); // Relaxed: written by the calling process only.
        if cwd == 0 {
            return Ok(Place::Outside(Outside::AsGiven));
        }
        let inode = task.region.inode(InodeRef::from_word(cwd).id);
        return check(task, inode, mode, flags).map(Place::Inside);
    }
    match table::fget_any(task, fd) {
        Ok(held) => check(task, held.inode, mode, flags).map(Place::Inside),
        Err(_) => Ok(Place::Outside(Outside::AsGiven)),
    }
}

#[inline]
fn check(task: &Task<'_>, inode: &Inode, mode: u32, flags: u32) -> Result<()> {
    if mode == 0 {
        return Ok(());
    }
    if mode & WRITE != 0 && writer::is_read_only(task, inode) {
        // What is a door to something else may be written on a read-only file system.
        let kind = inode.mode.load(Ordering::Relaxed) & S_IFMT;
        if !matches!(kind, S_IFBLK | S_IFCHR | S_IFIFO | S_IFSOCK) {
            return Err(Errno::EROFS);
        }
    }
    if flags & AT_EACCESS != 0 {
        return permission::check(task, inode, mode);
    }
    // Relaxed, as `permission::check`: what everybody may, the real user may.
    let everyone = (mode * 0o111) & !inode.mode.load(Ordering::Relaxed) == 0;
    if everyone && mode & WRITE == 0 && inode.acl.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    permission::check_as(task, inode, mode, Identity::real(task.process))
}
