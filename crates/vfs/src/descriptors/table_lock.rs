//! Who may change a table that threads share.
//!
//! Most changes are single exchanges of words, which threads make side by side ([`Beside`]). A change of the
//! kernel's table as well, and a copy of all entries at one moment, keep the others out ([`Alone`]);
//! [`lp_region::beside`] describes how. The records of mappings need the lock only ([`lock_records`]).
//!
//! If one thread has the table, none of these do anything.

use lp_region::order::{self, LockGuard, Rank};
use lp_region::process::Process;
use lp_region::sync::{AtomicU64, LOCK_SPINS, Ordering, pause, prefetch_to_write, spin};
use lp_region::{FileId, LaneId, beside, marks};

use crate::caller::fd_table::entry;
use crate::caller::task::Task;
use crate::descriptors::file;
use crate::lane::pin;

/// The right to change the table beside other threads, by the functions of this type, until it is dropped.
#[must_use = "it ends once this is dropped"]
pub struct Beside<'t, 'r>(Option<&'t Task<'r>>);

impl<'t, 'r> Beside<'t, 'r> {
    /// Waits while another thread has the table alone.
    #[inline(always)]
    #[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
    pub fn take(task: &'t Task<'r>) -> Self {
        // Relaxed: only this thread can have created the second thread.
        if task.process.threads.load(Ordering::Relaxed) == 0 {
            return Beside(None);
        }
        enter_slow(task);
        Beside(Some(task))
    }

    /// [`Beside::take`] of a thread that is about to exchange [`Process::parked`]: its line comes meanwhile, at
    /// once as one that may be written to. Notes the last period ([`lp_region::quiescent`]).
    #[inline(always)]
    #[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
    pub fn take_to_park(task: &'t Task<'r>) -> Self {
        // Relaxed: only this thread can have created the second thread.
        if task.process.threads.load(Ordering::Relaxed) == 0 {
            return Beside(None);
        }
        prefetch_to_write(&task.process.parked);
        enter_slow(task);
        task.lane.quiescent.note(&task.process.periods);
        Beside(Some(task))
    }

    /// Replaces `seen`, which the caller has just read. Returns whether it was still there.
    #[inline(always)]
    pub fn exchange(&self, word: &AtomicU64, seen: u64, new: u64) -> bool {
        if self.0.is_none() {
            word.store(new, Ordering::Release);
            return true;
        }
        // PAIRS: the loads of entries, and each other.
        word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Sets bits of a word.
    #[inline(always)]
    pub fn set(&self, word: &AtomicU64, bits: u64) {
        // Relaxed, both: the entries that the bits stand for are stored by this process's threads, which
        // read them only after an exchange of this word.
        if self.0.is_none() {
            word.store(word.load(Ordering::Relaxed) | bits, Ordering::Relaxed);
        } else {
            word.fetch_or(bits, Ordering::AcqRel);
        }
    }

    /// Stores `new` in an entry and returns the previous value, as [`crate::descriptors::table::replace`]
    /// does for a caller that is alone.
    #[inline(always)]
    pub(crate) fn replace(&self, task: &Task, place: &AtomicU64, new: u64) -> u64 {
        loop {
            let old = place.load(Ordering::Relaxed); // Relaxed: the exchange looks again.
            if self.leave(task, place, old, new) {
                return old;
            }
        }
    }

    /// Replaces `old`, which the caller has just read in an entry. If it names an open file, the lane answers
    /// for that from here until [`crate::life::open_file::let_go`]. Returns whether it was still there.
    #[inline(always)]
    pub(crate) fn leave(&self, task: &Task, place: &AtomicU64, old: u64, new: u64) -> bool {
        if old & entry::OPEN != 0 || self.0.is_some() {
            return self.leave_file(task, place, old, new);
        }
        place.store(new, Ordering::Release);
        true
    }

    /// [`Beside::leave`] of an entry that is known to name an open file.
    #[inline(always)]
    pub(crate) fn leave_file(&self, task: &Task, place: &AtomicU64, old: u64, new: u64) -> bool {
        if self.0.is_some() {
            return leave_beside(task, place, old, new);
        }
        file::leave(task, place, FileId(old as u32), new);
        true
    }
}

impl Drop for Beside<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(task) = self.0 {
            leave_slow(task);
        }
    }
}

/// [`Beside::leave`] while threads share the table.
#[inline(never)]
fn leave_beside(task: &Task, place: &AtomicU64, old: u64, new: u64) -> bool {
    if old == entry::TRANSIT {
        // The caller's own number: nobody else changes it.
        place.store(new, Ordering::Release);
        return true;
    }
    if old & entry::OPEN == 0 {
        // PAIRS: the acquire of those who read entries.
        return place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    }
    let (pinned, id) = (&task.lane.pins[pin::slot::CLOSE], FileId(old as u32));
    // Another thread may have closed it since the caller has read the entry, and its slot be another file's.
    let name = pin::with_generation(task, id);
    // Relaxed: ordered by the acquire load of the generation.
    if place.load(Ordering::Relaxed) != old || !marks::exchange_out(place, pinned, (name, old), new) {
        return false;
    }
    // It is this lane's now, which may free it.
    pinned.store(u64::from(id.0), Ordering::Release);
    true
}

#[inline(never)]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
fn enter_slow(task: &Task) {
    let (process, mark) = (task.process, &task.lane.changing);
    order::wait(order::of(&task.lane.holding), order::what(Rank::Table, mark));
    if !beside::enter(mark, &process.closed) {
        process.table_lock.lock(task.lane_id, task);
        beside::passed(&process.closed);
    }
}

#[inline(never)]
fn leave_slow(task: &Task) {
    let mark = &task.lane.changing;
    if beside::is_inside(mark) {
        beside::leave(mark);
    } else {
        task.process.table_lock.unlock();
    }
    order::gave(order::of(&task.lane.holding), mark);
}

/// The right to change the table while no other thread does, until it is dropped.
#[must_use = "it ends once this is dropped"]
pub struct Alone<'t, 'r>(Option<&'t Task<'r>>);

impl<'t, 'r> Alone<'t, 'r> {
    /// Waits until no other thread changes the table.
    #[inline(always)]
    #[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
    pub fn take(task: &'t Task<'r>) -> Self {
        // Relaxed: only this thread can have created the second thread.
        if task.process.threads.load(Ordering::Relaxed) == 0 {
            return Alone(None);
        }
        order::wait(order::of(&task.lane.holding), order::what(Rank::Table, &task.process.table_lock));
        task.process.table_lock.lock(task.lane_id, task);
        keep_others_out(task, beside::LATER);
        Alone(Some(task))
    }

    /// From here on no thread changes the table beside others: the process is about to lose its barriers.
    pub fn for_good(&self, task: &Task) {
        keep_others_out(task, beside::NEVER);
    }

    /// Leaves the table to this thread, for another function of it to unlock.
    pub(crate) fn leave(self) {
        core::mem::forget(self);
    }
}

impl Drop for Alone<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(task) = self.0 {
            task.process.table_lock.unlock();
            order::gave(order::of(&task.lane.holding), &task.process.table_lock);
        }
    }
}

/// Waits until no other thread of the process changes the table beside others. The caller holds the lock.
#[inline(never)]
fn keep_others_out(task: &Task, later: u32) {
    if !beside::close(&task.process.closed, later) {
        return;
    }
    for id in task.region.lanes().filter(|id| *id != task.lane_id) {
        // Relaxed: a lane that becomes the process's from here on finds the table closed.
        if task.region.lane(id).process.load(Ordering::Relaxed) == task.process_id.0 {
            wait_for(task, id);
        }
    }
}

/// Waits until the change that a thread makes beside others is over, or the thread is.
fn wait_for(task: &Task, id: LaneId) {
    let mut looks = 0;
    while beside::is_inside(&task.region.lane(id).changing) {
        looks += 1;
        if looks <= LOCK_SPINS {
            spin();
        } else if task.region.lane_is_dead(id, task.process_id) {
            return;
        } else {
            pause();
        }
    }
}

/// Before the process has a second thread.
pub(crate) fn before_thread(task: &Task) {
    // Relaxed, both: clone orders it for the new thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 {
        let closed = if lp_abi::sys::is_limited() { beside::NEVER } else { 0 };
        task.process.closed.store(closed, Ordering::Relaxed);
    }
}

/// The lock alone, held until this is dropped, if threads share the table.
#[must_use = "the lock is given back once this is dropped"]
pub(crate) struct RecordsLock<'r> {
    _held: Option<LockGuard<'r>>,
}

/// Takes the lock of the process's mapping records.
#[inline]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock_records<'r>(task: &Task<'r>) -> RecordsLock<'r> {
    // Relaxed: only this thread can have created the second thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 {
        return RecordsLock { _held: None };
    }
    let process: &'r Process = task.process;
    let of = order::of(&task.lane.holding);
    order::wait(of, order::what(Rank::Table, &process.table_lock));
    process.table_lock.lock(task.lane_id, task);
    RecordsLock { _held: Some(order::keep(of, &process.table_lock)) }
}
