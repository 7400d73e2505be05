//! chdir(2), fchdir(2), chroot(2).

use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::Spot;
use lp_region::process::caps;
use lp_region::sync::Ordering;

use crate::caller::task::{Place, Task};
use crate::caller::walked;
use crate::calls::keep;
use crate::lane::{pin, writer};
use crate::names::root;
use crate::names::walk::{self, Follow};
use crate::rights::credentials;
use crate::rights::permission::{self, EXEC};

/// Makes a directory of ours the working directory. For a host directory the door must ask the kernel and
/// then call [`left`].
///
/// # Errors
/// Those of path_resolution(7); `ENOTDIR`, `EACCES`.
pub fn chdir(task: &Task<'_>, path: UserPtr) -> Result<Place<()>> {
    chdir_from(task, Fd::CWD, path)
}

/// [`chdir`] for a path from a directory of the door's.
///
/// # Errors
/// Those of [`chdir`].
pub fn chdir_from(task: &Task<'_>, dirfd: Fd, path: UserPtr) -> Result<Place<()>> {
    at_directory(task, dirfd, path, |dir| enter(task, dir))
}

/// Makes the directory of a descriptor of ours the working directory.
///
/// # Errors
/// `EBADF`, `ENOTDIR`, `EACCES`.
pub fn fchdir(task: &Task<'_>, fd: Fd) -> Result<()> {
    let held = task.fget_any(fd)?;
    enter(task, held.spot())
}

/// Records that the working directory is the host's.
pub fn left(task: &Task<'_>) {
    task.directories.get().cwd.store(0, Ordering::Release);
}

/// Makes a directory of ours the root directory, from which absolute paths start. The working directory
/// stays. For a host directory the door must ask the kernel and then call [`root_left`].
///
/// # Errors
/// Those of path_resolution(7); `ENOTDIR`, `EACCES`, `EPERM`.
pub fn chroot(task: &Task<'_>, dirfd: Fd, path: UserPtr) -> Result<Place<()>> {
    at_directory(task, dirfd, path, |dir| {
        may_enter(task, dir)?;
        if !credentials::capable(task, caps::SYS_CHROOT) {
            return Err(Errno::EPERM);
        }
        root::set(task, Some(dir));
        Ok(())
    })
}

/// Records that the root directory is the kernel's.
pub fn root_left(task: &Task<'_>) {
    if root::of(task).is_some() {
        root::set(task, None);
    }
}

/// Calls `then` on the directory that a path names, which does not go away meanwhile.
fn at_directory(
    task: &Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    then: impl Fn(Spot) -> Result<()>,
) -> Result<Place<()>> {
    for _ in 0..walk::TRIES {
        let dir = match walk::inode(task, dirfd, path, Follow::Link)? {
            Place::Inside(found) => found.spot(),
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        // The pin keeps it from being freed until the process's record names it.
        let Ok(_pin) = keep::hold(task, pin::slot::WALK, dirfd, dir) else { continue };
        // So does the mark of a writer to its mount.
        let staying = writer::stay(task, dir.mount);
        if walked::is_gone(task, dir.mount) {
            continue;
        }
        let done = then(dir).map(Place::Inside);
        drop(staying);
        return done;
    }
    Err(Errno::ESTALE)
}

/// Checks that a directory may become the working or the root directory.
fn may_enter(task: &Task<'_>, dir: Spot) -> Result<()> {
    let record = task.region.inode(dir.inode.id);
    if !record.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    permission::check(task, record, EXEC)
}

fn enter(task: &Task<'_>, dir: Spot) -> Result<()> {
    may_enter(task, dir)?;
    // Release: a scan for users of an inode sees the directory here before the pin is cleared.
    task.directories.get().cwd.store(dir.to_word(), Ordering::Release);
    Ok(())
}
