//! The end of a process: what the last process of a run removes.

use lp_abi::Fd;
use lp_abi::linux::{__NR_fstat, stat};
use lp_region::ProcessId;
use lp_region::sync::Ordering;
use lp_vfs::task::Task;

use crate::high::run::words::SHADOWS;
use crate::high::special::node;
use crate::high::watch::shadow_end;

/// The process has released its slot and ends. The last process removes the shadows, and the last process of
/// a region that is not a file removes the objects.
pub(crate) fn left(task: &Task) {
    if task.run.host_objects.load(Ordering::Relaxed) != 0 {
        left_slow(task);
    }
}

/// If two processes end at the same time, the later to release its record lock finds no lock of the other's.
#[cold]
fn left_slow(task: &Task) {
    let is_last = task.region.processes().all(|id| task.region.process_is_dead(id, ProcessId::NONE));
    if !is_last {
        return;
    }
    if task.run.host_objects.load(Ordering::Relaxed) & SHADOWS != 0 {
        shadow_end::remove_all(task);
    }
    if node::any(task) && is_unnamed(task.region.fd()) {
        node::remove_all(task);
    }
}

/// Whether a file has no name.
fn is_unnamed(fd: Fd) -> bool {
    // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
    unsafe {
        let mut found: stat = core::mem::zeroed();
        lp_abi::syscall!(__NR_fstat, fd, &raw mut found).is_ok() && found.st_nlink == 0
    }
}
