//! Mount writers: who is changing files through a mount, like `mnt_want_write`, without a shared count.
//!
//! Each writer stores a mark into its own lane's line; the rare remount bears the cost. [`lp_region::marks`]
//! describes how the two exclude each other. A remount first announces that it is shutting the mount. A
//! writer that sees this waits a moment and then cancels the announcement, so a remounter that is stopped or
//! killed locks nobody out. A remount commits by one exchange, which fails if somebody has cancelled it.
//! [`crate::lane::freeze`] uses the same means.

use lp_abi::{Errno, Result};
use lp_region::layout::{MOUNT_SIZE_BITS, MOUNTS};
use lp_region::mount::mount_flags;
use lp_region::mount_leave::LEAVING;
use lp_region::order::{self, Rank};
use lp_region::records::OpenFile;
use lp_region::sync::{Ordering, futex_wait, pause};
use lp_region::{MountId, marks};

use crate::caller::task::Task;
use crate::caller::walked;

/// Checks by a writer of a mount that is being shut before it cancels the shutting; 50 us apart.
const PATIENCE: u32 = 40;
/// The same for a freeze, which lasts as long as a copy.
const FREEZE_PATIENCE: u32 = 40_000;
/// Checks of one writer's lane before who waits for it gives up; 1 ms apart.
const TRIES: u32 = 1000;

/// A writer's mark: the mount stays writable until this is dropped.
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

/// Begins a change through a mount. A lane makes one change at a time.
///
/// # Errors
/// `EROFS` if the mount is read-only.
#[inline(always)]
pub fn begin<'t, 'r>(task: &'t Task<'r>, mount: MountId) -> Result<Writing<'t, 'r>> {
    let lane = task.lane;
    let depth = lane.writing_depth.load(Ordering::Relaxed); // Relaxed: only this thread writes it.
    if depth == 0 {
        order::took(order::of(&lane.holding), order::what(Rank::Writing, &lane.writing));
    }
    let flags = &task.region.mount(mount).flags;
    if !marks::enter(&lane.writing, mount.mark(), flags, mount_flags::CLOSED) {
        enter_slow(task, mount, depth, mount_flags::CLOSED)?;
    }
    lane.writing_depth.store(depth + 1, Ordering::Relaxed);
    Ok(Writing { task })
}

/// [`begin`] for a change of names in a directory that a walk has led to. The mount is not unmounted
/// meanwhile.
///
/// # Errors
/// `EROFS`; `ESTALE` if the mount was unmounted since the walk: walk again.
#[inline(always)]
pub(crate) fn begin_walked<'t, 'r>(task: &'t Task<'r>, mount: MountId) -> Result<Writing<'t, 'r>> {
    let lane = task.lane;
    let depth = lane.writing_depth.load(Ordering::Relaxed); // Relaxed: only this thread writes it.
    if depth == 0 {
        order::took(order::of(&lane.holding), order::what(Rank::Writing, &lane.writing));
    }
    let flags = &task.region.mount(mount).flags;
    // PAIRS: the heavy barrier between an unmount's announcement and its look for marks.
    if !marks::enter(&lane.writing, mount.mark(), flags, mount_flags::CLOSED | LEAVING) {
        enter_walked_slow(task, mount, depth)?;
    }
    lane.writing_depth.store(depth + 1, Ordering::Relaxed);
    Ok(Writing { task })
}

/// [`enter_slow`] for [`begin_walked`], also for a mount that somebody was about to unmount.
#[cold]
fn enter_walked_slow(task: &Task, mount: MountId, depth: u32) -> Result<()> {
    if task.region.mount(mount).flags.load(Ordering::Acquire) & mount_flags::CLOSED != 0 {
        enter_slow(task, mount, depth, mount_flags::CLOSED)?;
    }
    if !walked::was_left(task, mount) {
        return Ok(());
    }
    if depth == 0 {
        marks::leave(&task.lane.writing);
        order::gave(order::of(&task.lane.holding), &task.lane.writing);
    }
    Err(Errno::ESTALE)
}

/// Marks that the caller is in a mount, which is not unmounted meanwhile. The caller, which changes nothing
/// through it, then looks whether it has been ([`crate::caller::walked::is_gone`]).
pub(crate) fn stay<'t, 'r>(task: &'t Task<'r>, mount: MountId) -> Writing<'t, 'r> {
    let lane = task.lane;
    order::took(order::of(&lane.holding), order::what(Rank::Writing, &lane.writing));
    // Relaxed, both: ordered by the barrier in `is_gone`; only this thread writes the depth, which is 0.
    lane.writing.store(mount.mark(), Ordering::Relaxed);
    lane.writing_depth.store(1, Ordering::Relaxed);
    Writing { task }
}

/// [`begin`] for a change of how content is kept, which nobody sees and which a read-only mount allows: only
/// a freeze keeps it out.
#[cold]
pub(crate) fn begin_unseen<'t, 'r>(task: &'t Task<'r>, mount: MountId) -> Writing<'t, 'r> {
    let lane = task.lane;
    order::took(order::of(&lane.holding), order::what(Rank::Writing, &lane.writing));
    let flags = &task.region.mount(mount).flags;
    if !marks::enter(&lane.writing, mount.mark(), flags, mount_flags::FREEZING) {
        let _ = enter_slow(task, mount, 0, mount_flags::FREEZING); // A freeze refuses nobody for good.
    }
    lane.writing_depth.store(1, Ordering::Relaxed); // Relaxed: only this thread writes it.
    Writing { task }
}

/// [`begin`] without a guard, for a change that contains no other. Returns whether the change may proceed; if
/// so, the caller must call [`end_alone`].
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

/// Slow path for a mount that is read-only or being shut, as far as `closed` has these flags. The lane's mark
/// is set at entry, and afterwards if this succeeds.
#[cold]
fn enter_slow(task: &Task, mount: MountId, depth: u32, closed: u32) -> Result<()> {
    let (mark, flags) = (&task.lane.writing, &task.region.mount(mount).flags);
    // Within another change, the lane that shuts the mount waits for this one.
    let patience = if depth == 0 { FREEZE_PATIENCE } else { 0 };
    for tries in 0..patience {
        let seen = flags.load(Ordering::Acquire);
        let is_worth = match seen & mount_flags::FREEZING {
            0 => seen & mount_flags::SHUTTING != 0 && tries < PATIENCE,
            _ => true,
        };
        if !is_worth {
            break;
        }
        marks::leave(mark);
        pause();
        if marks::enter(mark, mount.mark(), flags, closed) {
            return Ok(());
        }
    }
    loop {
        let seen = flags.load(Ordering::Acquire);
        if seen & closed & (mount_flags::READ_ONLY | mount_flags::SB_READ_ONLY) != 0 {
            if depth == 0 {
                marks::leave(mark);
                order::gave(order::of(&task.lane.holding), mark);
            }
            return Err(Errno::EROFS);
        }
        // A freeze waits for the change of which this one is a part.
        let bits = closed & if depth == 0 { mount_flags::WAITING } else { mount_flags::SHUTTING };
        if seen & bits == 0 || marks::call_off(flags, seen, bits) {
            return Ok(());
        }
    }
}

/// Waits for the other lanes' writers that are in a mount for which `is_shut` holds, once new ones are kept
/// out of it. Returns whether they have left; one that is stopped does not.
pub(crate) fn wait_for_all(task: &Task, is_shut: impl Fn(MountId) -> bool) -> bool {
    order::idle(order::of(&task.lane.holding));
    for id in task.region.lanes().filter(|id| *id != task.lane_id) {
        let lane = task.region.lane(id);
        for tries in 0.. {
            // PAIRS: the release store when the mark is dropped: the writer's changes are visible.
            let mark = lane.writing.load(Ordering::Acquire);
            let is_inside = mark != 0 && is_shut(MountId::of_mark(mark));
            if !is_inside || task.region.lane_is_dead(id, task.process_id) {
                break;
            }
            if tries > TRIES {
                return false;
            }
            let _ = futex_wait(&lane.writing, mark, 1_000_000);
        }
    }
    true
}

/// Whether a mount is read-only, for an open for writing.
#[inline]
pub(crate) fn is_read_only(task: &Task, mount: MountId) -> bool {
    // Relaxed: a later remount finds the open file.
    let flags = task.region.mount(mount).flags.load(Ordering::Relaxed);
    flags & (mount_flags::READ_ONLY | mount_flags::SB_READ_ONLY) != 0
}
