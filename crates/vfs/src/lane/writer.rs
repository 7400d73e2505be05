//! Mount writers: who is changing files through a mount now, like `mnt_want_write`, without a count that all
//! share.
//!
//! Each writer stores a mark into its own lane's line; the rare remount pays for everybody. How that excludes
//! is [`lp_region::marks`]'s. A remount first says that it is shutting the mount. A writer that sees this
//! waits a moment and then calls it off: so a remounter that is stopped or killed shuts nobody out. What a
//! remount commits by one exchange, nobody has called off before.

use lp_abi::{Errno, Result};
use lp_region::layout::{MOUNT_SIZE_BITS, MOUNTS};
use lp_region::mount::mount_flags;
use lp_region::order::{self, Rank};
use lp_region::records::OpenFile;
use lp_region::sync::{Ordering, pause};
use lp_region::{MountId, marks};

use crate::caller::task::Task;

/// Looks of a writer at a mount that is being shut before it calls that off; 50 us apart.
const PATIENCE: u32 = 40;
/// A writer's mark: the mount stays writable until it is dropped.
#[must_use = "the mark is taken away once this is dropped"]
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

/// Starts a change through a mount. A lane changes one at a time.
///
/// # Errors
/// `EROFS` when it is read-only.
#[inline]
pub fn begin<'t, 'r>(task: &'t Task<'r>, mount: MountId) -> Result<Writing<'t, 'r>> {
    let lane = task.lane;
    let depth = lane.writing_depth.load(Ordering::Relaxed); // Relaxed: only this thread writes it.
    if depth == 0 {
        order::took(order::of(&lane.holding), order::what(Rank::Writing, &lane.writing));
    }
    let flags = &task.region.mount(mount).flags;
    if !marks::enter(&lane.writing, mount.mark(), flags, mount_flags::CLOSED) {
        enter_slow(task, mount, depth)?;
    }
    lane.writing_depth.store(depth + 1, Ordering::Relaxed);
    Ok(Writing { task })
}

/// [`begin`] for a change that contains no other, without a guard: whether it may go on. [`end_alone`]
/// follows if so.
#[inline(always)]
pub(crate) fn begin_alone(task: &Task, file: &OpenFile) -> bool {
    let lane = task.lane;
    let mark = file.mount().mark() & ((MOUNTS as u32 - 1) << MOUNT_SIZE_BITS);
    // Relaxed: only this thread writes it.
    if lane.writing_depth.load(Ordering::Relaxed) != 0 {
        return false;
    }
    let flags = &task.region.marked_mount(mark).flags;
    let done = marks::enter(&lane.writing, mark, flags, mount_flags::CLOSED);
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

/// A mount that is read-only, or about to be. The lane's mark is set; afterwards it is if this succeeds.
#[cold]
fn enter_slow(task: &Task, mount: MountId, depth: u32) -> Result<()> {
    let (mark, flags) = (&task.lane.writing, &task.region.mount(mount).flags);
    // Within another change whoever shuts the mount waits for this lane.
    let patience = if depth == 0 { PATIENCE } else { 0 };
    for _ in 0..patience {
        if flags.load(Ordering::Acquire) & mount_flags::SHUTTING == 0 {
            break;
        }
        marks::leave(mark);
        pause();
        if marks::enter(mark, mount.mark(), flags, mount_flags::CLOSED) {
            return Ok(());
        }
    }
    loop {
        let seen = flags.load(Ordering::Acquire);
        if seen & (mount_flags::READ_ONLY | mount_flags::SB_READ_ONLY) != 0 {
            if depth == 0 {
                marks::leave(mark);
                order::gave(order::of(&task.lane.holding), mark);
            }
            return Err(Errno::EROFS);
        }
        let open = seen & !mount_flags::SHUTTING;
        if seen == open || marks::call_off(flags, seen, mount_flags::SHUTTING) {
            return Ok(());
        }
    }
}

/// Whether a mount is read-only: what an open for writing looks at.
#[inline]
pub(crate) fn is_read_only(task: &Task, mount: MountId) -> bool {
    // Relaxed: a later change finds the file that is open.
    let flags = task.region.mount(mount).flags.load(Ordering::Relaxed);
    flags & (mount_flags::READ_ONLY | mount_flags::SB_READ_ONLY) != 0
}
