//! [`WaitingFor`]: what a thread waits for, read by the search for a ring of processes that wait for each
//! other. A process waits for what its thread waits for that began last.
//!
//! A process first publishes its edge, then draws a ticket, and then follows the edges. The process with the
//! highest ticket leaves the ring, as Linux refuses the call that closes one. That process sees the whole
//! ring, because all others published their edges before they drew their tickets. A process that meets a
//! member without a ticket leaves the decision to that member, which has yet to search. If that member finds
//! a higher ticket after all, the owner of that ticket notices at its next search; every waiter searches
//! again from time to time.
//!
//! Linearisation: the draw. A ticket stays with its edge, so no two members of one ring both leave. Progress:
//! wait-free.

use crate::sync::{AtomicU64, Ordering};

/// What a thread waits for.
#[repr(C)]
pub struct WaitingFor {
    /// The edge; 0 if none.
    edge: AtomicU64,
    /// The ticket: when the wait began, counted in waits; 0 if not drawn yet.
    ticket: AtomicU64,
}

impl WaitingFor {
    /// A wait for nothing.
    pub fn new() -> Self {
        WaitingFor { edge: AtomicU64::new(0), ticket: AtomicU64::new(0) }
    }

    /// Publishes that the thread waits for `edge`, and draws a ticket from `tickets`.
    pub fn begin(&self, edge: u64, tickets: &AtomicU64) -> u64 {
        self.ticket.store(0, Ordering::Relaxed); // Relaxed: published with the edge.
        // PAIRS: the acquire load in `edge`, and the draws of others through the next.
        self.edge.store(edge, Ordering::Release);
        // PAIRS: with itself. A thread that draws later sees the edge.
        let ticket = tickets.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        // PAIRS: the acquire load in `ticket`.
        self.ticket.store(ticket, Ordering::Release);
        ticket
    }

    /// Publishes that the thread no longer waits for `edge`.
    pub fn end(&self, edge: u64) {
        // Relaxed: a thread that sees it late finds that the lock has changed, or that the thread still
        // waits.
        let _ = self.edge.compare_exchange(edge, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The edge; 0 if none.
    pub fn edge(&self) -> u64 {
        // PAIRS: the release store in `begin`: the ticket does not belong to an older edge.
        self.edge.load(Ordering::Acquire)
    }

    /// The ticket of the edge loaded before; 0 if not drawn yet.
    pub fn ticket(&self) -> u64 {
        // PAIRS: the release store in `begin`.
        self.ticket.load(Ordering::Acquire)
    }

    /// Clears the wait. The caller is the thread, or buries its lane.
    pub fn clear(&self) {
        self.edge.store(0, Ordering::Relaxed); // Relaxed: as in `end`.
    }
}

impl Default for WaitingFor {
    fn default() -> Self {
        WaitingFor::new()
    }
}

/// Whether the holder of ticket `mine` leaves the ring whose other members hold `others`.
pub fn leaves(mine: u64, others: impl IntoIterator<Item = u64>) -> bool {
    others.into_iter().all(|ticket| ticket != 0 && ticket < mine)
}
