//! Whether a thread that has restricted itself, landlock(7), may execute a file of the host's.
//!
//! The kernel gets the gate's file, or an outline, in the place of most programs, so it is asked about the
//! program before.

use lp_abi::linux::{__NR_execveat, AT_EXECVE_CHECK};
use lp_abi::{Errno, Result};
use lp_vfs::landlock;
use lp_vfs::task::Task;

use crate::high::frame::at::At;
use crate::high::frame::handler::{failed_with, kernel};

/// Whether the thread may execute a program of the host's. Kernels before 6.14 do not say.
///
/// # Errors
/// `EACCES`.
pub(crate) fn host(task: &Task, at: At, flags: u32) -> Result<()> {
    if !landlock::is_held(task) {
        return Ok(());
    }
    let done = kernel!(__NR_execveat, at.dirfd, at.path, 0, 0, flags | AT_EXECVE_CHECK);
    if failed_with(done, Errno::EACCES) { Err(Errno::EACCES) } else { Ok(()) }
}
