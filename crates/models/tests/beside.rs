//! Changes side by side: nobody is inside while somebody needs the others out of the way, and what that one
//! did is visible to who enters next.

use std::sync::Arc;

use lp_models::beside::{close, enter, is_inside, leave, passed};
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, weakened};

/// A table of two entries and a lock. The lock is modelled by a word that each thread takes by exchange.
#[derive(Default)]
struct Table {
    lock: AtomicU32,
    closed: AtomicU32,
    marks: [AtomicU32; 2],
    entries: [AtomicU32; 2],
}

impl Table {
    /// False if somebody else has the lock: this outcome is not followed, since models do not wait.
    fn try_lock(&self) -> bool {
        self.lock.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn unlock(&self) {
        self.lock.store(0, Ordering::Release);
    }

    /// A small change, which both entries show alike unless somebody looks in between.
    fn small(&self, own: usize) {
        let beside = enter(&self.marks[own], &self.closed);
        if !beside {
            if !self.try_lock() {
                return;
            }
            passed(&self.closed);
        }
        for entry in &self.entries {
            entry.fetch_add(1, Ordering::Relaxed);
        }
        if beside { leave(&self.marks[own]) } else { self.unlock() }
    }

    /// Looks at both entries as one, if nobody is inside, and changes both by plain stores.
    fn large(&self, others: &[usize]) {
        if !self.try_lock() {
            return;
        }
        let must_look = close(&self.closed, 1);
        if !must_look || others.iter().all(|other| !is_inside(&self.marks[*other])) {
            let [first, second] = [0, 1].map(|at| self.entries[at].load(Ordering::Relaxed));
            assert_eq!(first, second, "somebody was inside");
            self.entries.iter().for_each(|entry| entry.store(first + 10, Ordering::Relaxed));
            self.unlock();
        }
        // Otherwise it would wait, with the lock held: nothing else happens to the lock.
    }
}

/// A fork in one thread, changes in the other; the second is the one that opens.
fn changes_against_a_fork() {
    let table = Arc::new(Table::default());
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || other.large(&[0]));
    for _ in 0..2 {
        table.small(0);
    }
    thread.join().expect("no panic");
}

#[test]
fn nobody_is_inside_and_nothing_is_lost() {
    check(changes_against_a_fork);
}

#[test]
fn the_barrier_and_the_orderings_are_needed() {
    assert!(weakened(Weaken::LightBarrier, changes_against_a_fork));
    assert!(weakened(Weaken::Release, changes_against_a_fork));
    assert!(weakened(Weaken::Acquire, changes_against_a_fork));
}
