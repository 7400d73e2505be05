//! The position of an open file, for the length of a call.

use lp_region::order::{self, Rank};
use lp_region::records::OpenFile;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;

/// `f_pos` for the length of a call. While the file is shared, or threads share the table, it is held under
/// the file's lock, like Linux's `f_pos_lock`; otherwise it is a plain load and store.
///
/// Uses a flag instead of the lock's own guard, with which writev(2) would take two more instructions.
#[must_use = "the lock is given back once this is dropped"]
pub(crate) struct Position<'f> {
    file: &'f OpenFile,
    locked: bool,
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
        if self.locked {
            self.file.lock.unlock();
            order::gave(self.of, &self.file.lock);
        }
    }
}

/// Holds it, until the result is dropped.
#[inline(always)]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn hold<'f>(task: &Task, held: &HeldFile<'f>) -> Position<'f> {
    let of = order::of(&task.lane.holding);
    let shared = held.file.shared.load(Ordering::Relaxed) | task.process.threads.load(Ordering::Relaxed);
    if shared != 0 {
        order::wait(of, order::what(Rank::Position, &held.file.lock));
        held.file.lock.lock(task.lane_id, task);
    }
    Position { file: held.file, locked: shared != 0, of }
}
