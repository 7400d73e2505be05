//! Processes that have limited themselves (seccomp(2)): they make no system call of the gate's own, barriers
//! included.
//!
//! Such a process cannot revoke a bias ([`lp_region::bias`]). Therefore, before the filter takes effect and
//! while barriers still work, it marks its slot as limited and ends all biases, its own too. No bias is given
//! while a slot has the mark (`caller::limited`). Store-load on both sides: either the giver of a bias
//! sees the mark, or the scan of all locks sees the bias.

use lp_abi::{Errno, Result};
use lp_region::records::{Inode, OpenFile};
use lp_region::sync::{Ordering, heavy_barrier};

use crate::caller::task::Task;
use crate::descriptors::position;
use crate::inodes::inode;

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
    for id in task.region.slots::<Inode>() {
        let lock = &task.region.inode(id).lock;
        if lock.is_biased() {
            let _held = inode::lock(task, id);
            lock.end_bias();
        }
    }
    for id in task.region.slots::<OpenFile>() {
        position::end_bias(task, task.region.file(id));
    }
    Ok(())
}

/// Undoes [`begin`]: the process is not limited after all.
#[cold]
pub fn end(task: &Task) {
    task.process.limited.store(0, Ordering::Relaxed); // Relaxed: biases may resume a little later.
}
