//! The position of an open file, for the length of a call.

use lp_region::LaneId;
use lp_region::bias::Hold;
use lp_region::lock::{Lanes, Undertaker};
use lp_region::order::{self, Rank};
use lp_region::records::OpenFile;
use lp_region::sync::{AtomicU32, Ordering};

use crate::caller::limited;
use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;

/// `f_pos` for the length of a call. While the file is shared, or threads share the table, it is held under
/// the file's lock, like Linux's `f_pos_lock`; otherwise it is a plain load and store.
#[must_use = "the lock is given back once this is dropped"]
pub(crate) struct Position<'f> {
    file: &'f OpenFile,
    /// `None` without the lock.
    hold: Option<Hold>,
    mark: &'f AtomicU32,
    of: order::Of,
}

impl Position<'_> {
    /// The position at which the next read or write starts.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.file.position.load(Ordering::Relaxed) // Relaxed: plain, or ordered by the lock.
    }

    /// Sets the position.
    #[inline]
    pub(crate) fn set(&self, position: u64) {
        self.file.position.store(position, Ordering::Relaxed); // Relaxed: plain, or ordered by the lock.
    }
}

impl Drop for Position<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(hold) = self.hold {
            self.file.lock.leave(hold, self.mark);
            order::gave(self.of, &self.file.lock);
        }
    }
}

/// Holds it, until the result is dropped. A lane holds one at a time.
#[inline(always)]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn hold<'f>(task: &'f Task, held: &'f HeldFile) -> Position<'f> {
    let of = order::of(&task.lane.holding);
    let mark = &task.lane.seeking;
    let shared = held.file.shared.load(Ordering::Relaxed) | task.process.threads.load(Ordering::Relaxed);
    let mut hold = None;
    if shared != 0 {
        order::wait(of, order::what(Rank::Position, &held.file.lock));
        held.file.lock.set_key(held.id.0);
        hold = Some(held.file.lock.enter(task.lane_id, mark, &PositionUndertaker(task)));
    }
    Position { file: held.file, hold, mark, of }
}

/// Holds the position of a file that the caller has pinned, if this lane has its bias. Otherwise [`hold`] may
/// have to wait.
#[inline(always)]
pub(crate) fn hold_biased<'f>(task: &'f Task, file: &'f OpenFile) -> Option<Position<'f>> {
    let of = order::of(&task.lane.holding);
    let mark = &task.lane.seeking;
    if !file.lock.enter_biased(task.lane_id, mark) {
        return None;
    }
    order::took(of, order::what(Rank::Position, &file.lock));
    Some(Position { file, hold: Some(Hold::Biased), mark, of })
}

/// Takes its bias from the lane that has it.
#[cold]
pub(crate) fn end_bias(task: &Task, file: &OpenFile) {
    if file.lock.is_biased() {
        file.lock.lock(task.lane_id, &PositionUndertaker(task));
        file.lock.end_bias();
        file.lock.unlock();
    }
}

/// Takes over the lock of a position from a dead lane. A position is one word, so nothing is repaired.
struct PositionUndertaker<'t, 'r>(&'t Task<'r>);

impl Undertaker for PositionUndertaker<'_, '_> {
    fn lanes(&self) -> &dyn Lanes {
        self.0
    }

    fn replay(&self, lane: LaneId) {
        self.0.replay(lane);
    }

    fn repair(&self, _lane: LaneId) {}

    fn mark_of(&self, lane: LaneId) -> &AtomicU32 {
        &self.0.region.lane(lane).seeking
    }

    fn may_bias(&self) -> bool {
        !limited::any(self.0)
    }
}
