//! The shape of the tree: changes of where other paths lead, which [`crate::caller::prefix_cache`] must know
//! of, and directories that move to another parent.
//!
//! No lock guards the shape as a whole. A change of where paths lead is counted ([`lp_region::shape`]); a
//! directory that moves is marked ([`lp_region::moving`]). Two moves that could close a ring meet each
//! other's marks. The lane with the lower id keeps its mark and checks a bounded number of times whether the
//! other gives way. Otherwise a lane releases all that it holds, marks included, and waits with nothing held.
//! A stopped lane therefore delays only moves to below what it moves, and nobody waits for those that it
//! delays.

use lp_region::lane::Lane;
use lp_region::lock::Undertaker;
use lp_region::moving::{Climb, Directories};
use lp_region::order;
use lp_region::shape::{Begun, SETTLING, UNDER_WAY};
use lp_region::sync::{LOCK_SPINS, Ordering, pause, spin};
use lp_region::{InodeId, LaneId, Region, moving};

use crate::caller::task::Task;

/// Checks of another lane's mark before a lane gives up its own.
const PATIENCE: u32 = 20 * LOCK_SPINS;
/// Checks of a mark, 50 us apart, between two checks whether its lane lives.
const PAUSES: u32 = 20;
/// Climbs that are repeated because directories moved meanwhile.
const TRIES: u32 = 100;

/// A change of where paths lead, or of whether everyone may walk them, until this is dropped.
#[must_use = "the change is over once this is dropped"]
pub(crate) struct Shift<'t, 'r> {
    task: &'t Task<'r>,
    begun: Begun,
}

/// Begins a change of where paths lead. The caller must hold the locks of the inodes that it changes.
pub(crate) fn shift<'t, 'r>(task: &'t Task<'r>) -> Shift<'t, 'r> {
    Shift { task, begun: task.region.header().tree.begin(&task.lane.shifting) }
}

impl Drop for Shift<'_, '_> {
    fn drop(&mut self) {
        let region = self.task.region;
        region.header().tree.end(&self.task.lane.shifting, self.begun, || is_anybody_shifting(region));
    }
}

fn is_anybody_shifting(region: Region<'_>) -> bool {
    // Acquire: what preceded a change of the count that was seen.
    region.lanes().any(|lane| region.lane(lane).shifting.load(Ordering::Acquire) == UNDER_WAY)
}

/// Withdraws what a dead lane announced about the tree. The caller must be burying it and have replayed its
/// intent.
pub(crate) fn bury(task: &Task<'_>, lane: LaneId) {
    let (region, record) = (task.region, task.region.lane(lane));
    forget_marks(region, record, lane);
    if record.shifting.load(Ordering::Acquire) != 0 {
        record.shifting.store(SETTLING, Ordering::Release);
        region.header().tree.settle(&record.shifting, || is_anybody_shifting(region));
    }
}

fn forget_marks(region: Region<'_>, record: &Lane, lane: LaneId) {
    for place in &record.moves {
        let dir = InodeId(place.load(Ordering::Acquire));
        if dir.is_some() {
            region.inode(dir).moving.forget(lane);
            place.store(0, Ordering::Release);
        }
    }
}

/// The directories of a region.
struct All<'r>(Region<'r>);

impl Directories for All<'_> {
    fn mover(&self, dir: InodeId) -> LaneId {
        self.0.inode(dir).moving.mover()
    }

    fn parent(&self, dir: InodeId) -> InodeId {
        // Relaxed: one word, as seen; ordered by the marks.
        InodeId(self.0.inode(dir).parent.load(Ordering::Relaxed))
    }
}

/// A move by another lane that must end before a climb has a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Met {
    dir: InodeId,
    mover: LaneId,
}

/// The directories that a call has marked as moving. Must be dropped before the locks of their parents are
/// released.
#[must_use = "the marks are taken away once this is dropped"]
pub(crate) struct Marks<'t, 'r> {
    task: &'t Task<'r>,
}

impl<'t, 'r> Marks<'t, 'r> {
    /// No marks yet.
    pub(crate) fn new(task: &'t Task<'r>) -> Self {
        Marks { task }
    }

    /// Marks a directory; at most two. The caller must hold the lock of its parent.
    pub(crate) fn add(&mut self, dir: InodeId) {
        let moves = &self.task.lane.moves;
        // Relaxed, here and below: the lane's own.
        let at = usize::from(moves[0].load(Ordering::Relaxed) != 0);
        // Release: a burial of the lane finds each directory that is marked.
        moves[at].store(dir.0, Ordering::Release);
        self.task.region.inode(dir).moving.mark(self.task.lane_id);
    }

    /// Whether a marked directory is `from` or above it. The answer "no" holds until the marks are cleared.
    ///
    /// # Errors
    /// Another lane's move that must end first.
    pub(crate) fn are_above(&self, from: InodeId) -> Result<bool, Met> {
        let (task, tree) = (self.task, &self.task.region.header().tree);
        let mut patience = PATIENCE;
        let mut tries = TRIES;
        loop {
            let before = tree.read();
            match moving::climb(&All(task.region), from, task.lane_id) {
                Climb::Free => return Ok(false),
                // Unless directories that moved meanwhile misled it.
                Climb::Own if !tree.has_changed(before) || tries == 0 => return Ok(true),
                Climb::Own => tries -= 1,
                Climb::Met(_, mover) if task.lane_id < mover && patience != 0 => {
                    patience -= 1;
                    spin();
                }
                Climb::Met(dir, mover) if !is_over(task, Met { dir, mover }) => {
                    return Err(Met { dir, mover });
                }
                Climb::Met(..) => {}
            }
        }
    }
}

impl Drop for Marks<'_, '_> {
    fn drop(&mut self) {
        for place in &self.task.lane.moves {
            let dir = InodeId(place.load(Ordering::Relaxed)); // Relaxed: the lane's own.
            if dir.is_some() {
                self.task.region.inode(dir).moving.clear();
                place.store(0, Ordering::Release);
            }
        }
    }
}

/// Whether a directory is above another, even if directories move meanwhile.
pub(crate) fn is_above(task: &Task<'_>, above: InodeId, below: InodeId) -> bool {
    let tree = &task.region.header().tree;
    for _ in 0..TRIES {
        let before = tree.read();
        let is_above = moving::is_above(&All(task.region), above, below);
        if !tree.has_changed(before) {
            return is_above;
        }
    }
    moving::is_above(&All(task.region), above, below)
}

/// Waits until another lane's move is over. The caller must hold nothing.
#[cold]
pub(crate) fn wait(task: &Task<'_>, met: Met) {
    order::idle(order::of(&task.lane.holding));
    let moving = &task.region.inode(met.dir).moving;
    let mut looks = 0u32;
    while moving.mover() == met.mover {
        looks = looks.wrapping_add(1);
        if looks <= LOCK_SPINS {
            spin();
        } else if !looks.is_multiple_of(PAUSES) {
            pause();
        } else if is_over(task, met) {
            return;
        }
    }
}

/// Whether the move belongs to a dead lane. If so, it is completed, or had not begun, and is over.
fn is_over(task: &Task<'_>, met: Met) -> bool {
    let is_dead = task.is_dead(met.mover);
    if is_dead {
        task.replay(met.mover);
        task.region.inode(met.dir).moving.forget(met.mover);
    }
    is_dead
}
