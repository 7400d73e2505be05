//! chdir(2), fchdir(2).

use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::Spot;
use lp_region::sync::Ordering;

use crate::caller::task::{Place, Task};
use crate::caller::walked;
use crate::lane::{pin, writer};
use crate::names::dir;
use crate::names::walk::{self, Follow};
use crate::rights::permission::{self, EXEC};

/// Makes a directory of ours the working directory. For a host directory the door must ask the kernel and
/// then call [`left`].
///
/// # Errors
/// Those of path_resolution(7); `ENOTDIR`, `EACCES`.
pub fn chdir(task: &Task<'_>, path: UserPtr) -> Result<Place<()>> {
    for _ in 0..walk::TRIES {
        let dir = match walk::inode(task, Fd::CWD, path, Follow::Link)? {
            Place::Inside(found) => found.spot(),
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        // The pin keeps it from being freed until the process's record names it.
        let pin = pin::hold_found(task, pin::slot::WALK, dir);
        // So does the mark of a writer to its mount.
        let staying = writer::stay(task, dir.mount);
        if walked::is_gone(task, dir.mount) {
            continue;
        }
        // A removed directory lives on if it is the working directory already.
        if pin.is_ok() || task.process.cwd.load(Ordering::Relaxed) == dir.to_word() {
            let entered = enter(task, dir).map(Place::Inside);
            drop(staying);
            return entered;
        }
    }
    Err(Errno::ESTALE)
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
    task.process.cwd.store(0, Ordering::Release);
}

fn enter(task: &Task<'_>, dir: Spot) -> Result<()> {
    let record = task.region.inode(dir.inode.id);
    if !dir::is(record) {
        return Err(Errno::ENOTDIR);
    }
    permission::check(task, record, EXEC)?;
    // Release: a scan for users of an inode sees the directory here before the pin is cleared.
    task.process.cwd.store(dir.to_word(), Ordering::Release);
    Ok(())
}
