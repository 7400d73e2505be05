//! The biased lock: a lane inside by bias and a lane inside by the inner lock exclude each other.

use std::sync::Arc;

use lp_models::bias::{BiasedLock, Hold, STREAK};
use lp_models::ids::LaneId;
use lp_models::lock::{Lanes, OwnerLock, Undertaker};
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, check_bounded, deny_barriers, weakened};

const KEY: u32 = 7;

struct Shared {
    lock: BiasedLock,
    marks: [AtomicU32; 4],
    waits: [AtomicU32; 4],
    word: AtomicU32,
    dead: u32,
    repairs: AtomicU32,
}

impl Lanes for Shared {
    fn is_dead(&self, lane: LaneId) -> bool {
        lane.0 == self.dead
    }

    fn mark(&self, lane: LaneId) -> &AtomicU32 {
        &self.marks[lane.index()]
    }

    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>) {
        self.waits[me.index()].store(u32::from(lock.is_some()), Ordering::Relaxed);
    }

    fn is_awaited(&self, _: &OwnerLock) -> bool {
        self.waits.iter().any(|waits| waits.load(Ordering::Relaxed) != 0)
    }
}

impl Undertaker for Shared {
    fn lanes(&self) -> &dyn Lanes {
        self
    }

    fn repair(&self, lane: LaneId) {
        assert_eq!(lane.0, self.dead);
        self.repairs.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// A lock whose bias lane 1 has.
    fn biased_to_lane_1(dead: u32) -> Arc<Shared> {
        let zeros = || [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)];
        let (word, repairs) = (AtomicU32::new(0), AtomicU32::new(0));
        let shared =
            Arc::new(Shared { lock: BiasedLock::new(), marks: zeros(), waits: zeros(), word, dead, repairs });
        shared.lock.set_key(KEY);
        let me = LaneId(1);
        for _ in 0..=STREAK {
            let hold = shared.lock.enter(me, shared.mark(me), &*shared);
            assert_eq!(hold, Hold::Owned);
            shared.lock.leave(hold, shared.mark(me));
        }
        shared
    }

    fn add_one_entering(&self, me: LaneId) -> Hold {
        let hold = self.lock.enter(me, self.mark(me), self);
        self.add_one();
        self.lock.leave(hold, self.mark(me));
        hold
    }

    fn add_one(&self) {
        let seen = self.word.load(Ordering::Relaxed);
        self.word.store(seen + 1, Ordering::Relaxed);
    }
}

fn the_biased_lane_against_a_revoker() {
    let shared = Shared::biased_to_lane_1(0);
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || {
        let me = LaneId(2);
        other.lock.lock(me, &*other);
        other.add_one();
        other.lock.unlock();
    });
    shared.add_one_entering(LaneId(1));
    shared.add_one_entering(LaneId(1));
    thread.join().expect("no panic");
    assert_eq!(shared.word.load(Ordering::Relaxed), 3, "an addition was lost");
}

#[test]
fn excludes() {
    check(the_biased_lane_against_a_revoker);
}

fn the_biased_lane_against_one_that_does_not_wait() {
    let shared = Shared::biased_to_lane_1(0);
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || {
        let me = LaneId(2);
        let had = other.lock.try_lock(me, &*other);
        if had {
            other.add_one();
            other.lock.unlock();
        }
        u32::from(had)
    });
    shared.add_one_entering(LaneId(1));
    shared.add_one_entering(LaneId(1));
    let added = 2 + thread.join().expect("no panic");
    assert_eq!(shared.word.load(Ordering::Relaxed), added, "an addition was lost");
}

#[test]
fn excludes_without_waiting() {
    check(the_biased_lane_against_one_that_does_not_wait);
    assert!(weakened(Weaken::LightBarrier, the_biased_lane_against_one_that_does_not_wait));
}

/// Lane 2 cannot revoke: it gets the lock once lane 1 has given its bias up.
fn the_biased_lane_against_one_without_barriers() {
    let shared = Shared::biased_to_lane_1(0);
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || {
        deny_barriers();
        let me = LaneId(2);
        other.lock.lock(me, &*other);
        other.add_one();
        other.lock.unlock();
    });
    let me = LaneId(1);
    shared.add_one_entering(me);
    shared.lock.lock(me, &*shared);
    shared.lock.end_bias();
    shared.lock.unlock();
    thread.join().expect("no panic");
    assert_eq!(shared.word.load(Ordering::Relaxed), 2, "an addition was lost");
}

#[test]
fn excludes_one_without_barriers() {
    check_bounded(the_biased_lane_against_one_without_barriers);
}

#[test]
fn one_without_barriers_that_does_not_wait_leaves_the_bias() {
    check(|| {
        let shared = Shared::biased_to_lane_1(0);
        let other = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || {
            deny_barriers();
            assert!(!other.lock.try_lock(LaneId(2), &*other));
        });
        shared.add_one_entering(LaneId(1));
        thread.join().expect("no panic");
        assert!(shared.lock.is_biased());
    });
}

#[test]
fn needs_its_barrier() {
    assert!(weakened(Weaken::LightBarrier, the_biased_lane_against_a_revoker));
}

#[test]
fn needs_its_release_and_acquire() {
    assert!(weakened(Weaken::Release, the_biased_lane_against_a_revoker));
    assert!(weakened(Weaken::Acquire, the_biased_lane_against_a_revoker));
}

#[test]
fn the_sole_user_gets_the_bias_and_keeps_it() {
    check(|| {
        let shared = Shared::biased_to_lane_1(0);
        assert_eq!(shared.add_one_entering(LaneId(1)), Hold::Biased);
        assert_eq!(shared.add_one_entering(LaneId(1)), Hold::Biased);
    });
}

#[test]
fn a_lane_that_died_inside_is_repaired_once() {
    check(|| {
        let shared = Shared::biased_to_lane_1(1);
        let hold = shared.lock.enter(LaneId(1), shared.mark(LaneId(1)), &*shared);
        assert_eq!(hold, Hold::Biased);
        assert_eq!(shared.add_one_entering(LaneId(2)), Hold::Owned);
        assert_eq!(shared.add_one_entering(LaneId(2)), Hold::Owned);
        assert_eq!(shared.repairs.load(Ordering::Relaxed), 1);
    });
}

/// Lane 3 dies as it waits for lane 1 to leave, whose bias it has begun to revoke; then lane 2 wants the
/// lock.
fn a_revoker_that_dies() {
    let shared = Shared::biased_to_lane_1(3);
    let (me, dead) = (LaneId(1), LaneId(3));
    let hold = shared.lock.enter(me, shared.mark(me), &*shared);
    assert_eq!(hold, Hold::Biased);
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared.lock.lock(dead, &DiesLooking(&shared));
    }));
    assert!(died.is_err());
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || {
        other.lock.lock(LaneId(2), &*other);
        other.add_one();
        other.lock.unlock();
    });
    shared.add_one();
    shared.lock.leave(hold, shared.mark(me));
    thread.join().expect("no panic");
    assert_eq!(shared.word.load(Ordering::Relaxed), 2, "an addition was lost");
}

/// What a lane sees that dies at its first look at another's mark.
struct DiesLooking<'s>(&'s Shared);

impl Lanes for DiesLooking<'_> {
    fn is_dead(&self, lane: LaneId) -> bool {
        self.0.is_dead(lane)
    }

    fn mark(&self, _: LaneId) -> &AtomicU32 {
        std::panic::resume_unwind(Box::new("killed"))
    }

    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>) {
        self.0.note_wait(me, lock);
    }

    fn is_awaited(&self, lock: &OwnerLock) -> bool {
        self.0.is_awaited(lock)
    }
}

impl Undertaker for DiesLooking<'_> {
    fn lanes(&self) -> &dyn Lanes {
        self
    }

    fn repair(&self, lane: LaneId) {
        self.0.repair(lane);
    }
}

#[test]
fn a_revocation_outlives_its_revoker() {
    check_bounded(a_revoker_that_dies);
}
