//! The stack of batches: no slot is handed out twice, none is lost, contents travel with the slot, and of a
//! lane that died at any step of its exchange the burial can tell whether it took effect.

use std::sync::Arc;

use lp_models::signed::Note;
use lp_models::stack::{self, Batch, Head, WordExchange};
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, weakened};

const SLOTS: usize = 5;
const LANES: usize = 4;

struct Slab {
    head: Head,
    links: Vec<AtomicU32>,
    contents: Vec<AtomicU32>,
    notes: Vec<Note>,
    /// Where confirmations go if they get lost.
    lost: Option<Note>,
}

/// Whether the exchanges of others are confirmed before they are replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Confirm {
    Yes,
    No,
}

impl Slab {
    /// A slab whose stack has the slots 1, 2, ... `free`, put there by lane 3.
    fn with_free(free: u32) -> Arc<Slab> {
        Slab::new(free, Confirm::Yes)
    }

    fn new(free: u32, confirm: Confirm) -> Arc<Slab> {
        let words = || (0..SLOTS).map(|_| AtomicU32::new(0)).collect();
        let lost = (confirm == Confirm::No).then(Note::new);
        let notes = (0..LANES).map(|_| Note::new()).collect();
        let slab = Slab { head: Head::new(0), links: words(), contents: words(), notes, lost };
        (1..=free).rev().for_each(|index| slab.give(3, index));
        Arc::new(slab)
    }

    /// The notes of all lanes, to lane `me`.
    fn notes<'s>(&'s self, me: u32) -> impl Fn(u32) -> &'s Note {
        move |lane| {
            let lost = self.lost.as_ref().filter(|_| lane != me);
            lost.unwrap_or(&self.notes[lane as usize])
        }
    }

    fn link(&self, index: u32) -> &AtomicU32 {
        &self.links[index as usize]
    }

    /// The exchange of a lane that puts one slot back; it dies before it clears its note.
    fn exchange_give(&self, me: u32, index: u32) {
        self.contents[index as usize].store(index, Ordering::Relaxed);
        stack::give(&self.head, me, Batch { first: index, count: 1 }, self.link(index), self.notes(me));
    }

    /// The exchange of a lane that takes up to two; it dies before it clears its note.
    fn exchange_take(&self, me: u32) -> Option<Batch> {
        stack::take(
            &self.head,
            me,
            2,
            |index| (index < SLOTS as u32).then(|| self.link(index)),
            self.notes(me),
        )
    }

    fn give(&self, me: u32, index: u32) {
        self.exchange_give(me, index);
        self.notes[me as usize].clear();
    }

    fn take(&self, me: u32) -> Vec<u32> {
        let batch = self.exchange_take(me);
        let slots = batch.map_or(vec![], |batch| self.slots(batch));
        self.notes[me as usize].clear();
        slots
    }

    /// The slots of a batch that was taken.
    fn slots(&self, batch: Batch) -> Vec<u32> {
        let mut next = batch.first;
        let mut slots = vec![];
        for _ in 0..batch.count {
            slots.push(next);
            let contents = &self.contents[next as usize];
            assert_eq!(contents.load(Ordering::Relaxed), next, "contents came late");
            contents.store(100, Ordering::Relaxed);
            next = self.link(next).load(Ordering::Relaxed);
        }
        slots
    }

    /// What the burial of a dead lane finds that it had in hand, which was `before` when it began its
    /// exchange.
    fn bury(&self, lane: u32, before: Vec<u32>) -> Vec<u32> {
        let note = &self.notes[lane as usize];
        let in_hand = match stack::noted(note) {
            Some((kind, batch)) if self.head.took_effect(lane, note) => match kind {
                WordExchange::Take => self.slots(batch),
                WordExchange::Give => vec![],
                WordExchange::Fresh => unreachable!("nobody grows the slab"),
            },
            _ => before,
        };
        note.clear();
        in_hand
    }

    /// All slots: what is left on the stack, and those that `seen` were taken.
    fn assert_whole(&self, mut seen: Vec<u32>, all: &[u32]) {
        loop {
            let more = self.take(3);
            if more.is_empty() {
                break;
            }
            seen.extend(more);
            assert!(seen.len() < 2 * SLOTS, "the stack has a cycle: {seen:?}");
        }
        seen.sort_unstable();
        assert_eq!(seen, all);
    }
}

fn two_lanes_take_and_give() {
    let slab = Slab::with_free(3);
    let other = Arc::clone(&slab);
    let thread = loom::thread::spawn(move || {
        // Takes two and gives the first back: the ABA that the turn defends against.
        let mut slots = other.take(1);
        if !slots.is_empty() {
            other.give(1, slots.remove(0));
        }
        slots
    });
    let mut seen = slab.take(2);
    seen.extend(thread.join().expect("no panic"));
    slab.assert_whole(seen, &[1, 2, 3]);
}

/// Lane 1 dies taking, before or after its exchange, while lane 2 takes and gives.
fn a_taker_dies() {
    a_taker_dies_beside(Confirm::Yes);
}

fn a_taker_dies_beside(confirm: Confirm) {
    let slab = Slab::new(3, confirm);
    let other = Arc::clone(&slab);
    let thread = loom::thread::spawn(move || {
        // Dead where it leaves off: nobody may look at it before it is dead.
        other.exchange_take(1);
    });
    let mut seen = slab.take(2);
    if !seen.is_empty() {
        slab.give(2, seen.remove(0));
    }
    thread.join().expect("no panic");
    seen.extend(slab.bury(1, vec![]));
    slab.assert_whole(seen, &[1, 2, 3]);
}

/// The same with a burial beside what a third lane does.
fn a_taker_is_buried_beside_others() {
    let slab = Slab::with_free(3);
    let (dying, other) = (Arc::clone(&slab), Arc::clone(&slab));
    let death = loom::thread::spawn(move || _ = dying.exchange_take(1));
    let thread = loom::thread::spawn(move || other.take(2));
    death.join().expect("no panic");
    let mut seen = slab.bury(1, vec![]);
    seen.extend(thread.join().expect("no panic"));
    slab.assert_whole(seen, &[1, 2, 3]);
}

/// Lane 1 dies giving slot 4 back.
fn a_giver_dies() {
    a_giver_dies_beside(Confirm::Yes);
}

fn a_giver_dies_beside(confirm: Confirm) {
    let slab = Slab::new(2, confirm);
    let other = Arc::clone(&slab);
    slab.contents[4].store(4, Ordering::Relaxed);
    let thread = loom::thread::spawn(move || other.exchange_give(1, 4));
    let mut seen = slab.take(2);
    thread.join().expect("no panic");
    seen.extend(slab.bury(1, vec![4]));
    slab.assert_whole(seen, &[1, 2, 4]);
}

/// Lane 1 has written its note and dies before its exchange.
fn a_death_before_the_exchange_took_nothing() {
    let slab = Slab::with_free(2);
    let other = Arc::clone(&slab);
    // An exchange that fails, for the word has changed since, is one that never was.
    let stale = slab.head.load();
    let mut seen = slab.take(2);
    slab.give(2, seen.remove(0));
    let thread = loom::thread::spawn(move || {
        assert!(!other.head.exchange(1, stale, 0, 2 << 23 | 1 << 27 | 1, other.notes(1)));
    });
    seen.extend(slab.take(2));
    thread.join().expect("no panic");
    seen.extend(slab.bury(1, vec![]));
    slab.assert_whole(seen, &[1, 2]);
}

#[test]
fn hands_out_each_slot_once() {
    check(two_lanes_take_and_give);
}

#[test]
fn loses_nothing_with_a_taker() {
    check(a_taker_dies);
    check(a_taker_is_buried_beside_others);
}

#[test]
fn loses_nothing_with_a_giver() {
    check(a_giver_dies);
}

#[test]
fn takes_nothing_back_that_was_not_taken() {
    check(a_death_before_the_exchange_took_nothing);
}

#[test]
fn needs_its_release() {
    assert!(weakened(Weaken::Release, two_lanes_take_and_give));
}

#[test]
fn needs_its_acquire() {
    assert!(weakened(Weaken::Acquire, two_lanes_take_and_give));
}

#[test]
fn needs_its_confirmation() {
    assert!(weakened(Weaken::Nothing, || a_taker_dies_beside(Confirm::No)));
    assert!(weakened(Weaken::Nothing, || a_giver_dies_beside(Confirm::No)));
}
