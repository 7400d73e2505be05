//! Grace periods: what a thread has taken out of a word is not freed under a pin, though nobody passes a
//! barrier for it.

use std::sync::Arc;

use lp_models::marks::{exchange_out, named, pin, pinned, unpin};
use lp_models::quiescent::{self, Quiescent};
use lp_models::sync::{AtomicU32, AtomicU64, Ordering, Weaken, check, full_fence, heavy_barrier, weakened};

const NAME: u64 = 5;
const OTHER: u64 = 6;

/// Two words, what they name, and the lane of a thread that uses it.
#[derive(Default)]
struct Table {
    words: [AtomicU64; 2],
    pin: AtomicU64,
    own_pin: AtomicU64,
    lane: Quiescent,
    periods: AtomicU64,
    freed: [AtomicU32; 2],
}

impl Table {
    fn with_names() -> Arc<Table> {
        let table = Arc::new(Table::default());
        table.words[0].store(NAME, Ordering::Relaxed);
        table.words[1].store(OTHER, Ordering::Relaxed);
        table
    }

    /// A call on a name without a light barrier, which notes need not have.
    fn plain_call(&self, which: usize, name: u64) {
        self.pin.store(name, Ordering::Relaxed);
        if named(&self.words[which]) == name {
            assert_eq!(self.freed[which].load(Ordering::Relaxed), 0, "used after it was freed");
        }
        unpin(&self.pin);
    }

    /// A call on one of the names, as `fget` makes it.
    fn call(&self, which: usize, name: u64) {
        loop {
            if named(&self.words[which]) != name {
                break;
            }
            pin(&self.pin, name);
            if !self.lane.is_here() {
                self.lane.come_back(&self.periods);
            }
            if named(&self.words[which]) == name {
                assert_eq!(self.freed[which].load(Ordering::Relaxed), 0, "used after it was freed");
                break;
            }
        }
        unpin(&self.pin);
    }

    fn take_out(&self, which: usize, name: u64) {
        assert!(exchange_out(&self.words[which], &self.own_pin, (name, name), 0));
        unpin(&self.own_pin);
    }

    /// Frees a name that was taken out before the period began, if that is over.
    fn free(&self, which: usize, name: u64, period: u64) {
        full_fence();
        if self.lane.has_passed(period) && pinned(&self.pin) != name {
            self.freed[which].store(1, Ordering::Relaxed);
        }
    }
}

/// A thread that notes the period between two calls, or in the second of them.
fn a_user_that_notes() {
    let table = Table::with_names();
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || {
        other.take_out(0, NAME);
        let period = quiescent::begin(&other.periods);
        other.free(0, NAME, period);
    });
    table.plain_call(0, NAME);
    table.lane.note(&table.periods);
    table.plain_call(0, NAME);
    thread.join().expect("no panic");
}

/// A thread that is taken for away, and uses what is taken out afterwards.
fn a_user_that_is_away() {
    let table = Table::with_names();
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || {
        other.take_out(0, NAME);
        let period = quiescent::begin(&other.periods);
        let asked = other.lane.ask();
        assert!(heavy_barrier());
        other.lane.confirm(asked);
        other.free(0, NAME, period);
        other.take_out(1, OTHER);
        let period = quiescent::begin(&other.periods);
        other.free(1, OTHER, period);
    });
    table.call(1, OTHER);
    thread.join().expect("no panic");
}

/// Two threads ask at once: who asked before the lane came back does not confirm what the other asked.
fn a_user_that_two_ask() {
    let table = Table::with_names();
    let threads = [(0, NAME), (1, OTHER)].map(|(which, name)| {
        let other = Arc::clone(&table);
        loom::thread::spawn(move || {
            let own_pin = AtomicU64::new(0);
            assert!(exchange_out(&other.words[which], &own_pin, (name, name), 0));
            let period = quiescent::begin(&other.periods);
            let asked = other.lane.ask();
            assert!(heavy_barrier());
            other.lane.confirm(asked);
            other.free(which, name, period);
        })
    });
    table.call(1, OTHER);
    for thread in threads {
        thread.join().expect("no panic");
    }
}

#[test]
fn a_period_that_was_noted_is_over() {
    check(a_user_that_notes);
    assert!(weakened(Weaken::Release, a_user_that_notes));
    assert!(weakened(Weaken::Acquire, a_user_that_notes));
}

#[test]
fn a_lane_that_is_away_comes_back_first() {
    check(a_user_that_is_away);
    assert!(weakened(Weaken::LightBarrier, a_user_that_is_away));
    assert!(weakened(Weaken::FullFence, a_user_that_is_away));
}

#[test]
fn a_lane_is_away_for_who_asked_it_last() {
    lp_models::sync::check_up_to(2, a_user_that_two_ask);
}
