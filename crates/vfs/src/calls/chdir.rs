//! chdir(2), fchdir(2).

use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::Spot;
use lp_region::sync::Ordering;

use crate::caller::task::{Place, Task};
use crate::descriptors::table;
use crate::lane::pin;
use crate::names::dir;
use crate::names::walk::{self, Follow};
use crate::rights::permission::{self, EXEC};

/// Makes a directory of ours the working directory. When it is the host's, the door asks the kernel and then calls
/// [`left`].
///
/// # Errors
/// Those of path_resolution(7); `ENOTDIR`, `EACCES`.
pub fn chdir(task: &Task<'_>, path: UserPtr) -> Result<Place<()>> {
    for _ in 0..walk::TRIES {
        let dir = match walk::inode(task, Fd::CWD, path, Follow::Link)? {
            Place::Inside(found) => found.spot(),
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        // From the pin on, until the directory stands in the process's record, it is not freed.
        let pin = pin::hold(task, pin::slot::WALK, dir.inode);
        // Removed, it lives on as the working directory that it is already.
        if pin.is_ok() || task.process.cwd.load(Ordering::Relaxed) == dir.to_word() {
            return enter(task, dir).map(Place::Inside);
        }
    }
    Err(Errno::ESTALE)
}

/// Makes the directory that a descriptor of ours names the working directory.
///
/// # Errors
/// `EBADF`, `ENOTDIR`, `EACCES`.
pub fn fchdir(task: &Task<'_>, fd: Fd) -> Result<()> {
    let held = table::fget_any(task, fd)?;
    enter(task, held.spot())
}

/// The working directory is the host's from now on.
pub fn left(task: &Task<'_>) {
    task.process.cwd.store(0, Ordering::Release);
}

fn enter(task: &Task<'_>, dir: Spot) -> Result<()> {
    let record = task.region.inode(dir.inode.id);
    if !dir::is(record) {
        return Err(Errno::ENOTDIR);
    }
    permission::check(task, record, EXEC)?;
    // Release: the scan for users of an inode sees the directory here before the pin is gone.
    task.process.cwd.store(dir.to_word(), Ordering::Release);
    Ok(())
}
