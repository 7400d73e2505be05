//! Descriptors by which the gate asks the kernel about the process's memory: whether it may have them, and
//! where they are.

use lp_abi::linux::{__NR_fcntl, __NR_prctl, F_DUPFD_CLOEXEC};
use lp_abi::prctl::PR_GET_SECCOMP;
use lp_abi::{Fd, Result};
use lp_vfs::task::Task;

use crate::low::tools::close::close_number;

/// Whether the process may make calls of the gate's own. A filter from outside the run may kill it for one
/// that the launcher has not tried. Filters that processes of the run install are known (`missing::stop`).
pub(crate) fn may_call() -> bool {
    // SAFETY: no pointer is passed.
    let is_filtered = || unsafe { lp_abi::syscall!(__NR_prctl, PR_GET_SECCOMP) }.is_ok_and(|mode| mode != 0);
    !lp_abi::sys::is_limited() && !is_filtered()
}

/// Moves a descriptor beside the region's, out of the program's way.
///
/// # Errors
/// `EMFILE`; the descriptor is closed in any case.
pub(crate) fn beside_region(task: &Task, low: Fd) -> Result<Fd> {
    let min = task.region.fd().raw() + 2;
    // SAFETY: F_DUPFD_CLOEXEC only creates a descriptor.
    let high = unsafe { lp_abi::syscall!(__NR_fcntl, low, F_DUPFD_CLOEXEC, min) };
    close_number(low);
    high.map(|fd| Fd::new(fd as i32))
}
