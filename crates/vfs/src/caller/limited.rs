//! Whether a process has limited itself (seccomp(2)), so that no lock may be biased ([`crate::life::limit`]).

use lp_region::sync::Ordering;

use crate::caller::task::Task;

/// Whether a process of the region is limited, or died limited and has not been reaped.
pub(crate) fn any(task: &Task) -> bool {
    // Relaxed: ordered by the caller's light barrier.
    task.region.processes().any(|id| task.region.process(id).limited.load(Ordering::Relaxed) != 0)
}
