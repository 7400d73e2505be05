//! execve(2): whether a file may be executed.

use lp_abi::linux::{S_IFLNK, S_IFMT, S_IFREG};
use lp_abi::{Errno, Result};
use lp_region::mount::mount_flags;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::calls::landlock;
use crate::descriptors::busy;
use crate::names::mounts;
use crate::names::walk::Found;
use crate::rights::permission;

/// Checks that a file, which the caller has pinned, may be executed: the kernel's do_open_execat.
///
/// # Errors
/// `EACCES`; `ELOOP` if it is a symbolic link; `ETXTBSY` if it is open for writing.
pub fn check(task: &Task<'_>, found: &Found) -> Result<()> {
    let inode = task.region.inode(found.inode.id);
    let mode = inode.mode.load(Ordering::Relaxed); // Relaxed: one word.
    match mode & S_IFMT {
        S_IFLNK => return Err(Errno::ELOOP),
        // The kernel's path_noexec.
        S_IFREG if !mounts::has(task, found.mount, mount_flags::NOEXEC) => {}
        _ => return Err(Errno::EACCES),
    }
    permission::check(task, inode, permission::EXEC)?;
    landlock::may_execute(task, found)?;
    if busy::is_written(task, found.inode) { Err(Errno::ETXTBSY) } else { Ok(()) }
}
