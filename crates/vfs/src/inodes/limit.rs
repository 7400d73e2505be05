//! Processes that have limited themselves (seccomp(2)): they make no system call of the gate's own, barriers
//! included.
//!
//! Such a process cannot revoke a bias ([`lp_region::bias`]). Therefore, before the filter takes effect and
//! while barriers still work, it marks its slot as limited and ends all biases, its own too. No bias is given
//! while a slot has the mark. Store-load on both sides: either the giver of a bias sees the mark, or the
//! scan of all locks sees the bias.

use lp_abi::{Errno, Result};
use lp_region::InodeId;
use lp_region::records::Inode;
use lp_region::slab::Slot;
use lp_region::sync::{Ordering, heavy_barrier};

use crate::caller::task::Task;
use crate::inodes::inode;

/// Whether a process of the region is limited, or died limited and has not been reaped.
pub(crate) fn any(task: &Task) -> bool {
    // Relaxed: ordered by the caller's light barrier.
    task.region.processes().any(|id| task.region.process(id).limited.load(Ordering::Relaxed) != 0)
}

/// Called before the process limits itself.
///
/// # Errors
/// `EAGAIN` if it is limited already, without our knowledge: without a barrier no bias can be revoked.
#[cold]
pub fn begin(task: &Task) -> Result<()> {
    task.process.limited.store(1, Ordering::Relaxed); // Relaxed: ordered by the barrier.
    // PAIRS: the light barrier of the lane that gives a bias.
    if !heavy_barrier() {
        end(task);
        return Err(Errno::EAGAIN);
    }
    let used = task.region.header().slabs[Inode::SLAB].last();
    for id in (1..=used).map(InodeId) {
        let lock = &task.region.inode(id).lock;
        if lock.is_biased() {
            let _held = inode::lock(task, id);
            lock.end_bias();
        }
    }
    Ok(())
}

/// Undoes [`begin`]: the process is not limited after all.
#[cold]
pub fn end(task: &Task) {
    task.process.limited.store(0, Ordering::Relaxed); // Relaxed: biases may resume a little later.
}
