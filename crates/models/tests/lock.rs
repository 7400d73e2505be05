//! The owner lock: mutual exclusion, no lost wake, takeover of a dead owner's lock with one repair.

use std::sync::Arc;

use lp_models::ids::LaneId;
use lp_models::lock::{Lanes, OwnerLock, Undertaker};
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, check_bounded, weakened};

/// Lanes below 9 live, lane 9 is dead; counts repairs.
struct Undertakers {
    waits: [AtomicU32; 4],
    repairs: AtomicU32,
}

impl Undertakers {
    fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Undertakers { waits: [zero(), zero(), zero(), zero()], repairs: zero() }
    }
}

impl Lanes for Undertakers {
    fn is_dead(&self, lane: LaneId) -> bool {
        lane == LaneId(9)
    }

    fn mark(&self, _: LaneId) -> &AtomicU32 {
        unreachable!("no bias here")
    }

    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>) {
        self.waits[me.index()].store(u32::from(lock.is_some()), Ordering::Relaxed);
    }

    fn is_awaited(&self, _: &OwnerLock) -> bool {
        self.waits.iter().any(|waits| waits.load(Ordering::Relaxed) != 0)
    }
}

impl Undertaker for Undertakers {
    fn lanes(&self) -> &dyn Lanes {
        self
    }

    fn repair(&self, lane: LaneId) {
        assert_eq!(lane, LaneId(9));
        self.repairs.fetch_add(1, Ordering::Relaxed);
    }
}

fn add_one(lock: &OwnerLock, word: &AtomicU32, me: LaneId, undertaker: &dyn Undertaker) {
    lock.lock(me, undertaker);
    let seen = word.load(Ordering::Relaxed);
    word.store(seen + 1, Ordering::Relaxed);
    lock.unlock();
}

struct Shared {
    lock: OwnerLock,
    word: AtomicU32,
    undertakers: Undertakers,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let word = AtomicU32::new(0);
        Arc::new(Shared { lock: OwnerLock::new(), word, undertakers: Undertakers::new() })
    }

    fn add_one(&self, me: u32) {
        add_one(&self.lock, &self.word, LaneId(me), &self.undertakers);
    }
}

fn two_lanes_add() {
    let shared = Shared::new();
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || other.add_one(1));
    shared.add_one(2);
    thread.join().expect("no panic");
    assert_eq!(shared.word.load(Ordering::Relaxed), 2, "an addition was lost");
    assert!(!shared.lock.is_contended(), "nobody waits any more");
}

fn two_lanes_find_a_dead_owner() {
    let shared = Shared::new();
    assert!(shared.lock.try_lock(LaneId(9)));
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || other.add_one(1));
    shared.add_one(2);
    thread.join().expect("no panic");
    assert_eq!(shared.word.load(Ordering::Relaxed), 2, "an addition was lost");
    assert_eq!(shared.undertakers.repairs.load(Ordering::Relaxed), 1, "one repair, no more, no less");
}

/// Lane 3 dies waiting for lane 2; it is buried while lane 1 wants the lock and lane 2 takes it once more.
fn a_dead_waiter_is_forgotten() {
    let shared = Shared::new();
    assert!(shared.lock.try_lock(LaneId(2)));
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared.lock.lock(LaneId(3), &DiesWaiting(&shared.undertakers));
    }));
    assert!(died.is_err() && shared.lock.is_contended());
    shared.lock.unlock();
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || other.add_one(1));
    shared.undertakers.note_wait(LaneId(3), None);
    shared.lock.forget_waiter(&shared.undertakers);
    shared.add_one(2);
    thread.join().expect("no panic");
    assert_eq!(shared.word.load(Ordering::Relaxed), 2, "an addition was lost");
    assert!(!shared.lock.is_contended(), "nobody waits any more");
}

/// What a lane sees that dies after its first sleep.
struct DiesWaiting<'u>(&'u Undertakers);

impl Lanes for DiesWaiting<'_> {
    fn is_dead(&self, _: LaneId) -> bool {
        std::panic::resume_unwind(Box::new("killed"))
    }

    fn mark(&self, lane: LaneId) -> &AtomicU32 {
        self.0.mark(lane)
    }

    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>) {
        self.0.note_wait(me, lock);
    }

    fn is_awaited(&self, lock: &OwnerLock) -> bool {
        self.0.is_awaited(lock)
    }
}

impl Undertaker for DiesWaiting<'_> {
    fn lanes(&self) -> &dyn Lanes {
        self
    }

    fn repair(&self, _: LaneId) {}
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

#[test]
fn a_waiter_that_died_costs_nothing_once_it_is_buried() {
    check_bounded(a_dead_waiter_is_forgotten);
}
