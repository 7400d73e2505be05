//! Deadlocks between POSIX locks: who waits for whom, and who gets `EDEADLK` (`posix_locks_deadlock`).
//!
//! No lock guards the search; [`lp_region::ring`] describes how the members of a ring agree on the one that
//! leaves it. Locks belong to processes, and several threads of one may wait. As in Linux
//! (`what_owner_is_waiting_for`), the wait that began last counts as the process's.

use lp_region::sync::Ordering;
use lp_region::{LockId, ProcessId, ring};

use crate::caller::task::Task;
use crate::locks::lock::family;

/// Members of the largest ring that a search finds: the caller, the owner of the lock that it asks for, and
/// the `MAX_DEADLK_ITERATIONS` (10) that Linux's search goes on to.
const RING: usize = 12;

/// Publishes what the calling thread waits for, until this is dropped.
pub(crate) struct Waiting<'t, 'r> {
    task: &'t Task<'r>,
    edge: u64,
    ticket: u64,
}

impl<'t, 'r> Waiting<'t, 'r> {
    /// Publishes nothing yet.
    pub(crate) fn new(task: &'t Task<'r>) -> Self {
        Waiting { task, edge: 0, ticket: 0 }
    }

    /// Publishes that the thread waits for a lock as it was at `version`. Returns whether it must not wait,
    /// because it would close a ring. The caller must ask again before each sleep, to find rings that others
    /// left to this process to break.
    pub(crate) fn closes_ring(&mut self, blocker: LockId, version: u32) -> bool {
        let edge = u64::from(version) << 32 | u64::from(blocker.0);
        if self.edge != edge {
            self.edge = edge;
            self.ticket = self.task.lane.posix_wait.begin(edge, &self.task.region.header().tickets);
        }
        let mut tickets = [0; RING];
        let Some(others) = self.others(&mut tickets) else { return false };
        ring::leaves(self.ticket, others.iter().copied())
    }

    /// The tickets of the other members of the process's ring; `None` if it is in none.
    fn others<'a>(&self, tickets: &'a mut [u64; RING]) -> Option<&'a [u64]> {
        let (region, me) = (self.task.region, self.task.process_id);
        let mut edge = self.edge;
        for at in 0..RING {
            let owner = self.blocker(edge)?;
            if owner == me {
                return Some(&tickets[..at]);
            }
            if region.process_is_dead(owner, me) {
                return None;
            }
            (edge, tickets[at]) = self.newest_wait(owner)?;
        }
        None
    }

    /// Edge and ticket of the wait that a thread of the process began last. A wait that has not drawn a
    /// ticket yet counts as the last.
    fn newest_wait(&self, process: ProcessId) -> Option<(u64, u64)> {
        let region = self.task.region;
        let waits = region.lanes().filter_map(|id| {
            let lane = region.lane(id);
            // Relaxed: a thread's lane gets another owner only after its wait.
            let is_of = lane.process.load(Ordering::Relaxed) == process.0
                && lane.tid.load(Ordering::Relaxed) != lp_region::lane::GONE;
            let edge = lane.posix_wait.edge();
            (is_of && edge != 0).then(|| (edge, lane.posix_wait.ticket()))
        });
        waits.max_by_key(|(_, ticket)| ticket.wrapping_sub(1))
    }

    /// The process whose POSIX lock an edge leads to; `None` if the lock has changed since.
    fn blocker(&self, edge: u64) -> Option<ProcessId> {
        let (id, version) = (LockId(edge as u32), (edge >> 32) as u32);
        let record = self.task.region.lock_record(id);
        // Relaxed, here and below: the version, read before and after, tells whether they belong together.
        let is_posix = family::of(record.family.load(Ordering::Relaxed)).0 == family::POSIX;
        let owner = ProcessId(record.owner.load(Ordering::Relaxed));
        // Acquire: a lock changes before its version does, and gets another owner only afterwards.
        let stands = record.version.load(Ordering::Acquire) == version;
        (id.is_some() && is_posix && stands).then_some(owner)
    }
}

impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        if self.edge != 0 {
            self.task.lane.posix_wait.end(self.edge);
        }
    }
}
