//! Processes that have limited themselves (seccomp(2)): they make no system call of the gate's own, barriers
//! included.
//!
//! Such a process cannot revoke a bias ([`lp_region::bias`]). So before the filter is in force, while
//! barriers still work, it says in its slot that it is limited and ends what biases there are, its own too;
//! and nobody is given one while a slot says so. Store-load on both sides: whoever gives a bias sees the
//! slot's word, or the look at all locks sees the bias.

use lp_abi::{Errno, Result};
use lp_region::InodeId;
use lp_region::records::Inode;
use lp_region::slab::Slot;
use lp_region::sync::{Ordering, heavy_barrier};

use crate::caller::task::Task;
use crate::inodes::inode;

/// Whether a process of the region is limited, or died so and has not been reaped.
pub(crate) fn any(task: &Task) -> bool {
    // Relaxed: ordered by the caller's light barrier.
    task.region.processes().any(|id| task.region.process(id).limited.load(Ordering::Relaxed) != 0)
}

/// The process is about to be limited.
///
/// # Errors
/// `EAGAIN` when it is so already, behind our back: without a barrier no bias can be revoked.
#[cold]
pub fn begin(task: &Task) -> Result<()> {
    task.process.limited.store(1, Ordering::Relaxed); // Relaxed: ordered by the barrier.
    // PAIRS: the light barrier of whoever gives a bias.
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

/// It is not limited after all.
#[cold]
pub fn end(task: &Task) {
    task.process.limited.store(0, Ordering::Relaxed); // Relaxed: biases may come a little later.
}
