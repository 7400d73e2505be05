//! The owner lock: mutual exclusion, no lost wake, takeover of a dead owner's lock with one repair.

use std::sync::Arc;

use lp_models::ids::LaneId;
use lp_models::lock::{OwnerLock, Undertaker};
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, check_bounded, weakened};

/// Everybody lives.
struct Alive;

impl Undertaker for Alive {
    fn is_dead(&self, _: LaneId) -> bool {
        false
    }

    fn repair(&self, lane: LaneId) {
        panic!("repaired the living {lane:?}");
    }

    fn mark(&self, _: LaneId) -> &AtomicU32 {
        unreachable!("no bias here")
    }
}

/// Lane 9 is dead; counts repairs.
struct Undertakers(AtomicU32);

impl Undertaker for Undertakers {
    fn is_dead(&self, lane: LaneId) -> bool {
        lane == LaneId(9)
    }

    fn repair(&self, lane: LaneId) {
        assert_eq!(lane, LaneId(9));
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn mark(&self, _: LaneId) -> &AtomicU32 {
        unreachable!("no bias here")
    }
}

fn add_one(lock: &OwnerLock, word: &AtomicU32, me: LaneId, undertaker: &dyn Undertaker) {
    lock.lock(me, undertaker);
    let seen = word.load(Ordering::Relaxed);
    word.store(seen + 1, Ordering::Relaxed);
    lock.unlock();
}

fn two_lanes_add() {
    let shared = Arc::new((OwnerLock::new(), AtomicU32::new(0)));
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || add_one(&other.0, &other.1, LaneId(1), &Alive));
    add_one(&shared.0, &shared.1, LaneId(2), &Alive);
    thread.join().expect("no panic");
    assert_eq!(shared.1.load(Ordering::Relaxed), 2, "an addition was lost");
}

fn two_lanes_find_a_dead_owner() {
    let shared = Arc::new((OwnerLock::new(), AtomicU32::new(0), Undertakers(AtomicU32::new(0))));
    assert!(shared.0.try_lock(LaneId(9)));
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || add_one(&other.0, &other.1, LaneId(1), &other.2));
    add_one(&shared.0, &shared.1, LaneId(2), &shared.2);
    thread.join().expect("no panic");
    assert_eq!(shared.1.load(Ordering::Relaxed), 2, "an addition was lost");
    assert_eq!(shared.2.0.load(Ordering::Relaxed), 1, "one repair, no more, no less");
}

#[test]
fn excludes_and_wakes() {
    check(two_lanes_add);
}

#[test]
fn needs_its_release_and_acquire() {
    assert!(weakened(Weaken::Release, two_lanes_add));
    assert!(weakened(Weaken::Acquire, two_lanes_add));
}

#[test]
fn loses_a_wake_without_its_barriers() {
    assert!(weakened(Weaken::LightBarrier, two_lanes_add));
}

#[test]
fn a_dead_owner_is_repaired_once() {
    check_bounded(two_lanes_find_a_dead_owner);
}
