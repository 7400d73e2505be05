//! Breaking a lease: who opens or truncates a leased file does so to its shadow first.

use lp_abi::linux::{__NR_openat, __NR_truncate, O_ACCMODE, O_CLOEXEC, O_LARGEFILE, O_NOFOLLOW, O_NONBLOCK};
use lp_abi::{Errno, Fd, Result};
use lp_vfs::task::Task;
use lp_vfs::watch::LeaseBreak;

use crate::high::frame::at::spare_buffer;
use crate::high::frame::handler::thread;
use crate::high::watch::{shadow_fd, shadow_path};
use crate::low::live::deferred;

/// Does to the shadow what the caller is about to do to the inode, and waits there for the holders of leases.
/// An opened shadow is kept for [`shadow_fd::open`].
///
/// # Errors
/// `EWOULDBLOCK`, `EINTR`.
pub(crate) fn give_way(task: &Task, broken: &LeaseBreak) -> Result<()> {
    let Ok(path) = shadow_path::path_of(task, broken.inode, spare_buffer()) else { return Ok(()) };
    let path = path.as_ptr() as usize;
    let (nr, arguments) = match broken.flags {
        None => (__NR_truncate, [path, 0, 0, 0, 0, 0]),
        Some(flags) => {
            let flags = flags & (O_ACCMODE | O_NONBLOCK) | O_NOFOLLOW | O_CLOEXEC | O_LARGEFILE;
            (__NR_openat, [Fd::CWD.word(), path, flags as usize, 0, 0, 0])
        }
    };
    // SAFETY: a NUL-terminated path in a buffer of the thread's, which outlives the call.
    match unsafe { deferred::blocking_syscall(nr, arguments) } {
        Ok(number) if broken.flags.is_some() => {
            shadow_fd::drop_waited();
            thread().waited_shadow.set(number as u32 + 1);
            Ok(())
        }
        Err(errno @ (Errno::EAGAIN | Errno::EINTR)) => Err(errno),
        _ => Ok(()),
    }
}
