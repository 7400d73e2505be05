//! The soft limit of descriptors (`RLIMIT_NOFILE`), for numbers that the gate changes without the kernel: it
//! may be lower than a number that is in use.
//!
//! It is asked for once and kept until the process changes it. A child of vfork(2) has its parent's memory and
//! a limit of its own, so the process is kept with it.

use lp_abi::linux::{__NR_prlimit64, RLIMIT_NOFILE};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::{AtomicU64, Ordering};
use lp_vfs::task::Task;

/// The slot of the process above, its limit below; 0 if it is not known.
static KNOWN: AtomicU64 = AtomicU64::new(0);

/// # Errors
/// `EBADF` for a number that is not below the limit.
#[inline]
pub(super) fn check(task: &Task, fd: Fd) -> Result<()> {
    let known = KNOWN.load(Ordering::Relaxed); // Relaxed, here and below: the word stands alone.
    let limit = if (known >> 32) as u32 == task.process_id.0 { known as u32 } else { ask(task) };
    if (fd.raw() as u32) < limit { Ok(()) } else { Err(Errno::EBADF) }
}

#[cold]
fn ask(task: &Task) -> u32 {
    let mut limits = [u64::MAX; 2];
    // SAFETY: the kernel writes two words.
    let _ = unsafe { lp_abi::syscall!(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, limits.as_mut_ptr()) };
    let limit = limits[0].min(u32::MAX.into());
    KNOWN.store(u64::from(task.process_id.0) << 32 | limit, Ordering::Relaxed);
    limit as u32
}

/// The process has changed a limit.
pub(crate) fn changed() {
    KNOWN.store(0, Ordering::Relaxed);
}
