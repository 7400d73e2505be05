//! Mount writers: who is changing a file system now, like `mnt_want_write`, without a count that all share.
//!
//! Each writer stores a mark into its own lane's line; the rare remount pays for everybody. How that excludes is
//! [`lp_region::marks`]'s.

use lp_abi::{Errno, Result};
use lp_region::marks;
use lp_region::order::{self, Rank};
use lp_region::records::Inode;
use lp_region::sync::Ordering;

use crate::caller::task::Task;

/// A writer's mark: the root stays writable until it is dropped.
#[must_use = "the mark is taken away once this is dropped"]
pub(crate) struct Writing<'t, 'r> {
    task: &'t Task<'r>,
}

impl Drop for Writing<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        let lane = self.task.lane;
        let depth = lane.writing_depth.load(Ordering::Relaxed) - 1; // Relaxed: only this thread writes it.
        lane.writing_depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            marks::leave(&lane.writing);
            order::gave(order::of(&lane.holding), &lane.writing);
        }
    }
}

/// Starts a change of the file system that `inode` belongs to. A lane changes one at a time.
///
/// # Errors
/// `EROFS` when it is read-only.
#[inline]
pub(crate) fn begin<'t, 'r>(task: &'t Task<'r>, inode: &Inode) -> Result<Writing<'t, 'r>> {
    let root = inode.root.load(Ordering::Relaxed); // Relaxed: immutable.
    let lane = task.lane;
    let depth = lane.writing_depth.load(Ordering::Relaxed); // Relaxed: only this thread writes it.
    lane.writing_depth.store(depth + 1, Ordering::Relaxed);
    let writing = Writing { task };
    if depth == 0 {
        order::took(order::of(&lane.holding), order::what(Rank::Writing, &lane.writing));
    }
    match marks::enter(&lane.writing, root + 1, &task.region.header().read_only, 1 << (root & 15)) {
        true => Ok(writing),
        false => Err(Errno::EROFS),
    }
}

/// [`begin`] for a change that contains no other, without a guard: whether it may go on. [`end_alone`] follows if so.
#[inline(always)]
pub(crate) fn begin_alone(task: &Task, inode: &Inode) -> bool {
    let root = inode.root.load(Ordering::Relaxed); // Relaxed: immutable.
    let lane = task.lane;
    // Relaxed: only this thread writes it.
    if lane.writing_depth.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let done = marks::enter(&lane.writing, root + 1, &task.region.header().read_only, 1 << (root & 15));
    if !done {
        end_alone(task);
    }
    done
}

/// Ends what [`begin_alone`] began.
#[inline(always)]
pub(crate) fn end_alone(task: &Task) {
    marks::leave(&task.lane.writing);
}

/// Whether a root is read-only: what an open for writing looks at.
#[inline]
pub(crate) fn is_read_only(task: &Task, inode: &Inode) -> bool {
    let root = inode.root.load(Ordering::Relaxed); // Relaxed: immutable.
    task.region.header().read_only.load(Ordering::Relaxed) & 1 << (root & 15) != 0
}
