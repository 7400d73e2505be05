//! [`Wait`]: what a thread waits for, for whoever looks for a ring of processes that wait for each other.
//! What the last of its threads that began to wait waits for is what a process waits for.
//!
//! A process publishes its edge first, draws a ticket then, and looks along the edges after that. Of a ring
//! the process with the highest ticket leaves it, as Linux refuses the call that closes one. That process
//! sees the whole ring: all others published their edges before they drew theirs. Whoever sees a member that
//! has drawn no ticket yet leaves the decision to that one, which has still to look; should that one find a
//! higher ticket after all, its owner finds out when it looks again, as everybody who waits does from time to
//! time.
//!
//! Linearisation: the draw. A ticket stays with its edge, so no two members of one ring both leave. Progress:
//! wait-free.

use crate::sync::{AtomicU64, Ordering};

/// What a thread waits for.
#[repr(C)]
pub struct Wait {
    /// What; 0 nothing.
    edge: AtomicU64,
    /// When it began, counted in waits; 0 not drawn yet.
    ticket: AtomicU64,
}

impl Wait {
    /// A wait for nothing.
    pub fn new() -> Self {
        Wait { edge: AtomicU64::new(0), ticket: AtomicU64::new(0) }
    }

    /// Says that the thread waits for `edge`, and draws from `tickets`.
    pub fn begin(&self, edge: u64, tickets: &AtomicU64) -> u64 {
        self.ticket.store(0, Ordering::Relaxed); // Relaxed: published with the edge.
        // PAIRS: the acquire load in `edge`, and the draws of others through the next.
        self.edge.store(edge, Ordering::Release);
        // PAIRS: with itself: who draws later sees the edge.
        let ticket = tickets.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        // PAIRS: the acquire load in `ticket`.
        self.ticket.store(ticket, Ordering::Release);
        ticket
    }

    /// Says that the thread waits for `edge` no more.
    pub fn end(&self, edge: u64) {
        // Relaxed: who sees it late finds that what it waits for has changed, or that it still waits.
        let _ = self.edge.compare_exchange(edge, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// What it waits for; 0 nothing.
    pub fn edge(&self) -> u64 {
        // PAIRS: the release store in `begin`: the ticket is not an older edge's.
        self.edge.load(Ordering::Acquire)
    }

    /// The ticket of the edge that was loaded before; 0 not drawn yet.
    pub fn ticket(&self) -> u64 {
        // PAIRS: the release store in `begin`.
        self.ticket.load(Ordering::Acquire)
    }

    /// Says that the thread waits for nothing. The caller is the thread or buries its lane.
    pub fn clear(&self) {
        self.edge.store(0, Ordering::Relaxed); // Relaxed: as in `end`.
    }
}

impl Default for Wait {
    fn default() -> Self {
        Wait::new()
    }
}

/// Whether whoever drew `mine` leaves the ring whose other members drew `others`.
pub fn leaves(mine: u64, others: impl IntoIterator<Item = u64>) -> bool {
    others.into_iter().all(|ticket| ticket != 0 && ticket < mine)
}
