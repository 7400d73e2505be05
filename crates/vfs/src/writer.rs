//! Mount writers: who is changing files through a mount now, like `mnt_want_write`, without a count that all share.
//!
//! Each writer stores a mark into its own lane's line; the rare remount pays for everybody. How that excludes is
//! [`lp_region::marks`]'s. A remount first says that it is shutting the mount. A writer that sees this waits a moment
//! and then calls it off: so a remounter that is stopped or killed shuts nobody out. What a remount commits by one
//! exchange, nobody has called off before.

use lp_abi::{Errno, Result};
use lp_region::layout::{MOUNT_SIZE_BITS, MOUNTS};
use lp_region::mount::{mount_flags, mount_state};
use lp_region::records::{OpenFile, file_mode};
use lp_region::sync::{Ordering, futex_wait, heavy_barrier, pause};
use lp_region::{FileId, InodeRef, MountId, marks};

use crate::mounts;
use crate::pin;
use crate::table::{self, entry};
use crate::task::Task;

/// Looks at the lane of one writer before a remount gives up; 1 ms apart.
const REMOUNT_TRIES: u32 = 1000;
/// Looks of a writer at a mount that is being shut before it calls that off; 50 us apart.
const PATIENCE: u32 = 100;
/// Attempts of a remount that writers call off.
const ATTEMPTS: u32 = 5;

/// A writer's mark: the mount stays writable until it is dropped.
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
    let flags = &task.region.mount(mount).flags;
    if !marks::enter(&lane.writing, mount.mark(), flags, mount_flags::CLOSED) {
        enter_slow(task, mount, depth)?;
    }
    lane.writing_depth.store(depth + 1, Ordering::Relaxed);
    Ok(Writing { task })
}

/// [`begin`] for a change that contains no other, without a guard: whether it may go on. [`end_alone`] follows if so.
#[inline(always)]
pub(crate) fn begin_alone(task: &Task, file: &OpenFile) -> bool {
    let lane = task.lane;
    let mark = table::mount_of(file).mark() & ((MOUNTS as u32 - 1) << MOUNT_SIZE_BITS);
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
            }
            return Err(Errno::EROFS);
        }
        let open = seen & !mount_flags::SHUTTING;
        // PAIRS: the exchange in `commit`, which fails from here on.
        let is_open =
            seen == open || flags.compare_exchange(seen, open, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_open {
            return Ok(());
        }
    }
}

/// Whether a mount is read-only: what an open for writing looks at.
#[inline]
pub fn is_read_only(task: &Task, mount: MountId) -> bool {
    // Relaxed: a later change finds the file that is open.
    let flags = task.region.mount(mount).flags.load(Ordering::Relaxed);
    flags & (mount_flags::READ_ONLY | mount_flags::SB_READ_ONLY) != 0
}

/// What becomes read-only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// One mount.
    Mount(MountId),
    /// A file system, in all its mounts.
    Superblock(u32),
}

impl What {
    fn bit(self) -> u32 {
        match self {
            What::Mount(_) => mount_flags::READ_ONLY,
            What::Superblock(_) => mount_flags::SB_READ_ONLY,
        }
    }

    fn holds(self, task: &Task, mount: MountId) -> bool {
        match self {
            What::Mount(only) => mount == only,
            What::Superblock(root) => {
                let record = task.region.mount(mount);
                // Relaxed, both: changed under the lock that the caller holds.
                matches!(record.state.load(Ordering::Relaxed), mount_state::ATTACHED | mount_state::DETACHED)
                    && record.superblock.load(Ordering::Relaxed) == root
            }
        }
    }

    fn mounts(self, task: &Task) -> impl Iterator<Item = MountId> {
        mounts::all(task).filter(move |mount| self.holds(task, *mount))
    }
}

/// Makes something writable again. The caller holds the mounts' lock.
pub fn open(task: &Task, what: What) {
    for mount in what.mounts(task) {
        // Release: a writer that comes in sees what the remount did before.
        task.region.mount(mount).flags.fetch_and(!(what.bit() | mount_flags::SHUTTING), Ordering::Release);
    }
}

/// Makes something read-only. Once it returns no change through it is under way and none begins. The caller holds the
/// mounts' lock.
///
/// # Errors
/// `EBUSY` when a file is open for writing, when a writer does not finish, or in a process without barriers.
pub fn shut(task: &Task, what: What) -> Result<()> {
    for _ in 0..ATTEMPTS {
        for mount in what.mounts(task) {
            // Relaxed: ordered by the heavy barrier.
            task.region.mount(mount).flags.fetch_or(mount_flags::SHUTTING, Ordering::Relaxed);
        }
        // PAIRS: the light barrier in `marks::enter`.
        let is_free = heavy_barrier() && wait_for_writers(task, what) && !has_writable_file(task, what);
        if !is_free {
            break;
        }
        if what.mounts(task).all(|mount| commit(task, mount, what.bit())) {
            return Ok(());
        }
    }
    open(task, what);
    Err(Errno::EBUSY)
}

/// Makes one mount read-only that is being shut; false if a writer has called that off.
fn commit(task: &Task, mount: MountId, bit: u32) -> bool {
    let flags = &task.region.mount(mount).flags;
    let mut seen = flags.load(Ordering::Acquire);
    while seen & mount_flags::SHUTTING != 0 {
        let new = seen & !mount_flags::SHUTTING | bit;
        // PAIRS: the exchange in `enter_slow`: of the two one fails.
        match flags.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    seen & bit != 0
}

/// Whether the writers that were there have finished.
fn wait_for_writers(task: &Task, what: What) -> bool {
    for id in task.region.lanes().filter(|id| *id != task.lane_id) {
        let lane = task.region.lane(id);
        for tries in 0.. {
            // PAIRS: the release store when the mark is dropped: what the writer changed is changed.
            let mark = lane.writing.load(Ordering::Acquire);
            if mark == 0
                || !what.holds(task, MountId::of_mark(mark))
                || task.region.lane_is_dead(id, task.process_id)
            {
                break;
            }
            if tries > REMOUNT_TRIES {
                return false;
            }
            let _ = futex_wait(&lane.writing, mark, 1_000_000);
        }
    }
    true
}

/// Whether a file is open for writing, or on its way into or out of a table. A file system does not become read-only
/// either while files of it without a name are open (sb_prepare_remount_readonly).
fn has_writable_file(task: &Task, what: What) -> bool {
    let region = task.region;
    let keeps = |file: &OpenFile| {
        let mode = file.mode.load(Ordering::Relaxed); // Relaxed, here and below: immutable while named.
        if !what.holds(task, table::mount_of(file)) || mode & file_mode::PATH != 0 {
            return false;
        }
        let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
        let nameless = || region.inode(inode.id).nlink.load(Ordering::Relaxed) == 0;
        mode & file_mode::WRITE != 0 || matches!(what, What::Superblock(_)) && nameless()
    };
    let in_tables = region.processes().any(|process| {
        let limit = region.process(process).fd_limit.load(Ordering::Acquire) as usize;
        let open = |word: u64| word & entry::OPEN != 0 && keeps(region.file(FileId(word as u32)));
        region.fd_table(process).iter().take(limit).any(|word| open(word.load(Ordering::Acquire)))
            && !region.process_is_dead(process, task.process_id)
    });
    in_tables
        || region.lanes().any(|id| {
            let lane = region.lane(id);
            lane.pins
                .iter()
                .map(marks::pinned)
                .any(|pin| pin != 0 && pin & pin::INODE == 0 && keeps(region.file(FileId(pin as u32))))
                && !region.lane_is_dead(id, task.process_id)
        })
}
