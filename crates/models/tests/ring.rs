//! Processes that wait for each other: one of a ring leaves it.

use std::sync::Arc;

use lp_models::ring::{WaitingFor, leaves};
use lp_models::sync::{AtomicU64, check};

struct Shared {
    waits: Vec<WaitingFor>,
    tickets: AtomicU64,
}

impl Shared {
    /// Whether `me`, who drew `ticket`, sees a ring and leaves it. Process n waits for the process that its
    /// edge less one names.
    fn leaves(&self, me: usize, ticket: u64) -> bool {
        let mut at = me;
        let mut tickets = Vec::new();
        for _ in 0..self.waits.len() {
            let edge = self.waits[at].edge();
            if edge == 0 {
                return false;
            }
            at = edge as usize - 1;
            if at == me {
                return leaves(ticket, tickets);
            }
            // The edge comes first, as in the code that ships.
            self.waits[at].edge();
            tickets.push(self.waits[at].ticket());
        }
        false
    }
}

fn ring(count: usize) -> impl Fn() + Sync + Send + 'static {
    move || {
        let waits = (0..count).map(|_| WaitingFor::new()).collect();
        let shared = Arc::new(Shared { waits, tickets: AtomicU64::new(0) });
        let wait = move |shared: &Shared, me: usize| {
            let next = (me + 1) % count;
            let ticket = shared.waits[me].begin(next as u64 + 1, &shared.tickets);
            (ticket, shared.leaves(me, ticket))
        };
        let others: Vec<_> = (1..count)
            .map(|me| {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || wait(&shared, me))
            })
            .collect();
        let mut looked = vec![wait(&shared, 0)];
        looked.extend(others.into_iter().map(|other| other.join().expect("no panic")));
        let mut left = looked.iter().filter(|(_, left)| *left).count();
        // Those that stayed look again after a while.
        for (me, (ticket, _)) in looked.iter().enumerate().filter(|(_, (_, left))| !left) {
            left += usize::from(shared.leaves(me, *ticket));
        }
        assert_eq!(left, 1);
    }
}

#[test]
fn one_of_two_leaves() {
    check(ring(2));
}

#[test]
fn one_of_three_leaves() {
    check(ring(3));
}

#[test]
fn tickets_that_are_not_drawn_decide() {
    assert!(leaves(3, [1, 2]));
    assert!(!leaves(3, [1, 4]));
    assert!(!leaves(3, [0, 2]));
}
