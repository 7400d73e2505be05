//! Mount writers: who is changing a file system now, like `mnt_want_write`, without a count that all share.
//!
//! Each writer stores a mark into its own lane's line; the rare remount pays for everybody. How that excludes is
//! [`lp_region::marks`]'s.

use lp_abi::linux::MS_RDONLY;
use lp_abi::{Errno, Result};
use lp_region::marks;
use lp_region::order::{self, Rank};
use lp_region::records::{Inode, file_mode};
use lp_region::sync::{Ordering, futex_wait};
use lp_region::{FileId, InodeRef};

use crate::table::entry;
use crate::task::Task;

/// Looks at the lanes of writers before a remount gives up; 1 ms apart.
const REMOUNT_TRIES: u32 = 5000;

/// A writer's mark: the root stays writable until it is dropped.
pub struct Writing<'t, 'r> {
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
pub fn begin<'t, 'r>(task: &'t Task<'r>, inode: &Inode) -> Result<Writing<'t, 'r>> {
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
pub fn is_read_only(task: &Task, inode: &Inode) -> bool {
    let root = inode.root.load(Ordering::Relaxed); // Relaxed: immutable.
    task.region.header().read_only.load(Ordering::Relaxed) & 1 << (root & 15) != 0
}

/// Makes a root read-only or writable again, as `mount -o remount`; of `flags` only `MS_RDONLY` counts.
///
/// # Errors
/// `EBUSY` when a file of it is open for writing; `EAGAIN` when a writer does not finish, or in a process
/// without barriers.
pub fn remount(task: &Task, root: u32, flags: u32) -> Result<()> {
    let header = task.region.header();
    let bit = 1 << (root & 15);
    if flags & MS_RDONLY == 0 {
        header.read_only.fetch_and(!bit, Ordering::Release);
        return Ok(());
    }
    let shut = if marks::shut(&header.read_only, bit) { Ok(()) } else { Err(Errno::EAGAIN) };
    let done =
        shut.and_then(|()| wait_for_writers(task, root)).and_then(|()| match has_writable_file(task, root) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        });
    if done.is_err() {
        header.read_only.fetch_and(!bit, Ordering::Release);
    }
    done
}

fn wait_for_writers(task: &Task, root: u32) -> Result<()> {
    order::idle(order::of(&task.lane.holding));
    for id in task.region.lanes() {
        let lane = task.region.lane(id);
        let mut tries = 0;
        // PAIRS: the release store when the mark is dropped: what the writer changed is changed.
        while lane.writing.load(Ordering::Acquire) == root + 1
            && !task.region.lane_is_dead(id, task.process_id)
        {
            tries += 1;
            if tries > REMOUNT_TRIES {
                return Err(Errno::EAGAIN);
            }
            let _ = futex_wait(&lane.writing, root + 1, 1_000_000);
        }
    }
    Ok(())
}

fn has_writable_file(task: &Task, root: u32) -> bool {
    let region = task.region;
    region.processes().any(|process| {
        let limit = region.process(process).fd_limit.load(Ordering::Acquire) as usize;
        region.fd_table(process).iter().take(limit).any(|word| {
            let word = word.load(Ordering::Acquire);
            let file = region.file(FileId(word as u32));
            let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
            word & entry::OPEN != 0
                && file.mode.load(Ordering::Relaxed) & file_mode::WRITE != 0
                && region.inode(inode.id).root.load(Ordering::Relaxed) == root
        })
    })
}
