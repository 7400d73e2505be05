//! The name table: no name is missed while its bucket is split, none is mistaken for another whose slot it had.

use std::sync::Arc;

use lp_models::probe;
use lp_models::seq::Seq;
use lp_models::sync::{AtomicU64, Ordering, Weaken, check, weakened};

const ENTRY: u64 = 7;

/// Two buckets of one entry. State 0: all is in the first; state 1: the name has moved to the second.
struct Table {
    state: AtomicU64,
    seqs: [Seq; 2],
    entries: [AtomicU64; 2],
    /// The entry's slot: its name and what it names.
    name: AtomicU64,
    target: AtomicU64,
}

const NAME: u64 = 1;
const TARGET: u64 = 10;
const OTHER_NAME: u64 = 2;
const OTHER_TARGET: u64 = 20;

impl Table {
    fn new() -> Self {
        Table {
            state: AtomicU64::new(0),
            seqs: [Seq::new(), Seq::new()],
            entries: [AtomicU64::new(ENTRY), AtomicU64::new(0)],
            name: AtomicU64::new(NAME),
            target: AtomicU64::new(TARGET),
        }
    }

    /// As `lp_vfs::hash` scans a bucket and reads an entry.
    fn look(&self) -> (Option<u64>, bool) {
        let find = |index: u32| {
            let entry = self.entries[index as usize].load(Ordering::Acquire);
            let is_it = entry == ENTRY && self.name.load(Ordering::Relaxed) == NAME;
            is_it.then(|| self.target.load(Ordering::Acquire))
        };
        probe::look(&self.state, |state| state as u32, |index| &self.seqs[index as usize], find)
    }

    fn split(&self) {
        let copy = || {
            self.entries[1].store(self.entries[0].load(Ordering::Relaxed), Ordering::Release);
            true
        };
        probe::split(&self.state, 1, [&self.seqs[0], &self.seqs[1]], copy, |_| {
            self.entries[0].store(0, Ordering::Release);
        });
    }

    /// The name goes, and another one gets its slot, in a bucket that this model leaves out.
    fn reuse(&self) {
        self.seqs[0].begin();
        self.entries[0].store(0, Ordering::Release);
        self.seqs[0].end();
        self.name.store(OTHER_NAME, Ordering::Relaxed);
        self.target.store(OTHER_TARGET, Ordering::Release);
    }
}

fn a_split_hides_nothing() {
    let table = Arc::new(Table::new());
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || other.split());
    let (hit, certain) = table.look();
    assert!(!certain || hit == Some(TARGET), "a name that stands still was not found");
    thread.join().expect("no panic");
    assert_eq!(table.look(), (Some(TARGET), true));
}

fn a_slot_is_used_again() {
    let table = Arc::new(Table::new());
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || other.reuse());
    let (hit, certain) = table.look();
    assert!(!certain || hit.is_none_or(|target| target == TARGET), "another entry's target");
    thread.join().expect("no panic");
    assert_eq!(table.look(), (None, true));
}

#[test]
fn names_are_found_while_buckets_split() {
    check(a_split_hides_nothing);
}

#[test]
fn a_look_that_does_not_wait_for_the_count_misses_names() {
    assert!(
        weakened(Weaken::AcquireFence, a_split_hides_nothing)
            || weakened(Weaken::Acquire, a_split_hides_nothing)
    );
    assert!(weakened(Weaken::Release, a_split_hides_nothing));
}

#[test]
fn a_reused_slot_is_not_mistaken() {
    check(a_slot_is_used_again);
}

#[test]
fn a_slot_published_without_order_is_mistaken() {
    assert!(weakened(Weaken::Release, a_slot_is_used_again));
}
