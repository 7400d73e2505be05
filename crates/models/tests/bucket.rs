//! The name table: no word of a living entry is missed, none is lost and none stays, whatever inserts,
//! removes, splits and dies beside one another.

use std::cell::Cell;
use std::sync::Arc;

use lp_models::bucket::{self, Bucket, Growing, HashTable, Look, Mark};
use lp_models::split;
use lp_models::sync::{self, AtomicU64, Ordering, Weaken, exhaustively, mortal};

fn check(model: impl Fn() + Sync + Send + 'static) {
    exhaustively(2, || sync::check(model));
}

fn weakened(weaken: Weaken, model: impl Fn() + Sync + Send + 'static) -> bool {
    exhaustively(2, || sync::weakened(weaken, model))
}

/// Words of a bucket.
const N: usize = 1;

/// A table that starts with one bucket: an odd hash moves to bucket 1 with the first split.
struct Names {
    state: AtomicU64,
    firsts: [Bucket<N>; 2],
    overflows: [Bucket<N>; 4],
}

/// The table as one thread sees it, with the overflow bucket that it has reserved.
struct Lane {
    names: Arc<Names>,
    reserved: Cell<u32>,
    /// A state that never changes, for who does not look again.
    blind: Option<AtomicU64>,
}

impl HashTable<N> for Lane {
    const BASE: u32 = 0;
    const MOST: usize = 4;

    fn state(&self) -> &AtomicU64 {
        self.blind.as_ref().unwrap_or(&self.names.state)
    }

    fn first(&self, index: u32) -> &Bucket<N> {
        &self.names.firsts[index as usize]
    }

    fn overflow(&self, id: u32) -> &Bucket<N> {
        &self.names.overflows[id as usize]
    }
}

impl Growing<N> for Lane {
    fn take(&self) -> Option<u32> {
        let id = self.reserved.replace(0);
        (id != 0).then(|| {
            self.overflow(id).clear();
            id
        })
    }

    fn linked(&self) {}

    fn give(&self, id: u32) {
        self.reserved.set(id);
    }
}

impl Lane {
    fn new(names: &Arc<Names>, reserved: u32) -> Self {
        Lane { names: Arc::clone(names), reserved: Cell::new(reserved), blind: None }
    }

    fn blind(names: &Arc<Names>, reserved: u32) -> Self {
        Lane { blind: Some(AtomicU64::new(0)), ..Lane::new(names, reserved) }
    }

    /// Whether a look finds the word, once it is certain.
    fn finds(&self, hash: u32, id: u32) -> bool {
        let scan = |bucket: &Bucket<N>| -> Look<()> {
            let word = bucket::word(hash, id);
            // As `lp_vfs::hash` does: most words are seen to be another's without order.
            let is_it =
                bucket.entries.iter().any(|entry| bucket::bare(entry.load(Ordering::Relaxed)) == word);
            (is_it.then_some(()), true)
        };
        let (mut hit, mut certain) = bucket::look(self, hash, scan);
        while !certain {
            (hit, certain) = bucket::look_slow(self, hash, scan);
        }
        hit.is_some()
    }

    fn insert(&self, hash: u32, id: u32) {
        assert!(bucket::insert(self, hash, id).is_some(), "a bucket was reserved");
    }

    fn remove(&self, hash: u32, id: u32) {
        bucket::remove(self, hash, id);
    }

    fn split(&self) {
        assert!(split::split(self), "a bucket was reserved");
    }
}

/// Hash that moves with the split, its entry; hash that stays, its entry.
const MOVES: (u32, u32) = (1, 7);
const STAYS: (u32, u32) = (2, 8);

fn names(words: &[(u32, u32)]) -> Arc<Names> {
    let names = Arc::new(Names {
        state: AtomicU64::new(0),
        firsts: core::array::from_fn(|_| Bucket::new()),
        overflows: core::array::from_fn(|_| Bucket::new()),
    });
    for ((hash, id), spare) in words.iter().zip([3, 3]) {
        Lane::new(&names, spare).insert(*hash, *id);
    }
    names
}

/// Every word in the table as it stands, with the first bucket of its chain.
fn words(names: &Arc<Names>) -> Vec<(usize, u32, Mark)> {
    let lane = Lane::new(names, 0);
    let mut found = Vec::new();
    for (index, first) in names.firsts.iter().enumerate() {
        for entry in bucket::chain(&lane, first).flat_map(|bucket| &bucket.entries) {
            let word = entry.load(Ordering::Acquire);
            if !bucket::is_empty(word) {
                found.push((index, bucket::id_of(word as u32), bucket::mark_of(word)));
            }
        }
    }
    found
}

/// Runs two threads to their ends.
fn beside(one: impl FnOnce() + 'static, other: impl FnOnce()) {
    let thread = loom::thread::spawn(one);
    other();
    thread.join().expect("no panic");
}

fn a_split_hides(blind: bool) {
    let names = names(&[MOVES]);
    let (splitter, reader) = (Lane::new(&names, 0), Lane::new(&names, 0));
    let reader = if blind { Lane::blind(&names, 0) } else { reader };
    beside(
        move || splitter.split(),
        move || assert!(reader.finds(MOVES.0, MOVES.1), "a word that stands still was not found"),
    );
    assert_eq!(words(&names), [(1, MOVES.1, Mark::None)]);
}

#[test]
fn words_are_found_while_they_are_carried_away() {
    check(|| a_split_hides(false));
}

#[test]
fn a_look_that_does_not_look_at_the_state_again_misses_words() {
    assert!(weakened(Weaken::Nothing, || a_split_hides(true)));
}

#[test]
fn a_look_without_order_misses_words() {
    assert!(weakened(Weaken::AcquireFence, || a_split_hides(false)));
    assert!(weakened(Weaken::Release, || a_split_hides(false)));
}

/// A word that stays goes from an overflow bucket to the room that another has left.
fn a_word_comes_forward() {
    let names = names(&[MOVES, STAYS]);
    let (splitter, reader) = (Lane::new(&names, 0), Lane::new(&names, 0));
    beside(
        move || splitter.split(),
        move || assert!(reader.finds(STAYS.0, STAYS.1), "a word that stays was not found"),
    );
    let mut left = words(&names);
    left.sort_unstable_by_key(|word| word.0);
    assert_eq!(left, [(0, STAYS.1, Mark::None), (1, MOVES.1, Mark::None)]);
    assert_eq!(bucket::id_of(names.firsts[0].entries[0].load(Ordering::Relaxed) as u32), STAYS.1);
}

#[test]
fn words_are_found_while_they_come_forward() {
    check(a_word_comes_forward);
}

fn an_insert_beside_a_split(full: bool, blind: bool) {
    let names = names(if full { &[STAYS] } else { &[] });
    let (splitter, inserter) = (Lane::new(&names, 2), Lane::new(&names, 1));
    let inserter = if blind { Lane::blind(&names, 1) } else { inserter };
    let reader = Lane::new(&names, 0);
    beside(
        move || splitter.split(),
        move || {
            inserter.insert(MOVES.0, MOVES.1);
            assert!(reader.finds(MOVES.0, MOVES.1), "an entry was inserted and is not found");
        },
    );
    let found: Vec<_> = words(&names).into_iter().filter(|word| word.1 == MOVES.1).collect();
    assert_eq!(found, [(1, MOVES.1, Mark::None)]);
}

#[test]
fn an_insert_is_found_whatever_is_split() {
    check(|| an_insert_beside_a_split(false, false));
}

#[test]
fn an_insert_into_a_full_bucket_is_found_whatever_is_split() {
    check(|| an_insert_beside_a_split(true, false));
}

#[test]
fn an_insert_that_does_not_look_at_the_state_again_is_lost() {
    assert!(weakened(Weaken::Nothing, || an_insert_beside_a_split(false, true)));
    assert!(weakened(Weaken::Nothing, || an_insert_beside_a_split(true, true)));
}

#[test]
fn an_insert_without_order_is_lost() {
    assert!(weakened(Weaken::Acquire, || an_insert_beside_a_split(false, false)));
    assert!(weakened(Weaken::Release, || an_insert_beside_a_split(false, false)));
}

/// A split that copies words and empties their places, without marks.
fn naive_split(lane: &Lane) {
    let state = split::next_state(0, 0);
    lane.state().store(state | bucket::UNDER_WAY, Ordering::Release);
    let from = &lane.names.firsts[0].entries[0];
    let word = from.load(Ordering::Acquire);
    let to = &lane.names.firsts[1].entries[0];
    if bucket::bare(word) == bucket::word(MOVES.0, MOVES.1)
        && to.compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        && from.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed).is_err()
    {
        let _ = to.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
    lane.state().store(state, Ordering::Release);
}

fn a_removal_beside_a_split(words_before: &[(u32, u32)], (hash, id): (u32, u32), blind: bool) {
    let names = names(words_before);
    let (splitter, remover) = (Lane::new(&names, 2), Lane::new(&names, 1));
    let remover = if blind { Lane::blind(&names, 1) } else { remover };
    beside(move || splitter.split(), move || remover.remove(hash, id));
    assert!(words(&names).iter().all(|word| word.1 != id && word.2 == Mark::None), "a word stayed");
}

#[test]
fn a_removed_word_stays_nowhere() {
    check(|| a_removal_beside_a_split(&[MOVES], MOVES, false));
    check(|| a_removal_beside_a_split(&[MOVES, STAYS], STAYS, false));
}

#[test]
fn a_removal_that_does_not_look_at_the_state_again_leaves_words() {
    assert!(weakened(Weaken::Nothing, || a_removal_beside_a_split(&[MOVES], MOVES, true)));
}

/// A name goes and comes again, in the same slot: its word is the same.
fn a_word_comes_again(
    words_before: &[(u32, u32)],
    (hash, id): (u32, u32),
    split: impl FnOnce(&Lane) + 'static,
) {
    let names = names(words_before);
    let (splitter, owner) = (Lane::new(&names, 2), Lane::new(&names, 1));
    let reader = Lane::new(&names, 0);
    beside(
        move || split(&splitter),
        move || {
            owner.remove(hash, id);
            owner.insert(hash, id);
            assert!(reader.finds(hash, id), "an entry was inserted again and is not found");
        },
    );
    let found: Vec<_> = words(&names).into_iter().filter(|word| word.1 == id).collect();
    let home = if hash == MOVES.0 { 1 } else { 0 };
    assert_eq!(found, [(home, id, Mark::None)]);
}

#[test]
fn a_word_that_comes_again_is_not_taken_for_the_one_that_left() {
    check(|| a_word_comes_again(&[MOVES], MOVES, Lane::split));
}

#[test]
fn a_word_that_stays_and_comes_again_is_not_taken_for_the_one_before() {
    check(|| a_word_comes_again(&[MOVES, STAYS], STAYS, Lane::split));
}

#[test]
fn a_split_without_marks_loses_words() {
    assert!(weakened(Weaken::Nothing, || a_word_comes_again(&[MOVES], MOVES, naive_split)));
}

/// The splitter dies after `steps`; its burial ends the split, beside the owner of a word, or not at all.
fn a_splitter_dies(steps: u32, buried: bool) {
    let names = names(&[MOVES]);
    let (splitter, owner) = (Lane::new(&names, 2), Lane::new(&names, 1));
    let burier = Lane::new(&names, 3);
    let ended = move || {
        if !mortal(steps, || splitter.split()) && buried {
            split::go_on(&burier);
        }
    };
    let reader = Lane::new(&names, 0);
    beside(ended, move || {
        owner.remove(MOVES.0, MOVES.1);
        owner.insert(MOVES.0, MOVES.1);
        assert!(reader.finds(MOVES.0, MOVES.1), "an entry was inserted again and is not found");
    });
    assert_eq!(words(&names), [(1, MOVES.1, Mark::None)]);
    assert!(!bucket::is_under_way(names.state.load(Ordering::Relaxed)));
}

/// Stores and exchanges of a split with one word, at least.
const STEPS: core::ops::Range<u32> = 1..10;

#[test]
fn a_split_is_ended_whenever_the_splitter_dies() {
    STEPS.for_each(|steps| check(move || a_splitter_dies(steps, true)));
}

#[test]
fn a_split_that_nobody_ends_leaves_words_behind() {
    assert!(weakened(Weaken::Nothing, || a_splitter_dies(3, false)));
}

/// The burier dies, too.
#[test]
fn a_split_is_ended_whoever_dies_at_it() {
    for steps in STEPS {
        check(move || {
            let names = names(&[MOVES, STAYS]);
            let (splitter, first) = (Lane::new(&names, 2), Lane::new(&names, 1));
            let remover = Lane::new(&names, 0);
            let ended = move || {
                mortal(steps, || splitter.split());
                mortal(2, || _ = split::go_on(&first));
                assert!(split::go_on(&first));
            };
            beside(ended, move || remover.remove(STAYS.0, STAYS.1));
            assert_eq!(words(&names), [(1, MOVES.1, Mark::None)]);
        });
    }
}

/// A name goes, and its lane dies as it comes again; `is_there` says whether the burial has to insert it.
fn an_owner_dies(steps: u32, is_there: impl Fn(&Lane) -> bool + 'static) {
    let names = names(&[MOVES]);
    let (splitter, owner) = (Lane::new(&names, 2), Lane::new(&names, 1));
    let again = Lane::new(&names, 3);
    beside(
        move || splitter.split(),
        move || {
            owner.remove(MOVES.0, MOVES.1);
            if !mortal(steps, || owner.insert(MOVES.0, MOVES.1)) && !is_there(&again) {
                again.insert(MOVES.0, MOVES.1);
            }
        },
    );
    assert_eq!(words(&names), [(1, MOVES.1, Mark::None)]);
}

#[test]
fn a_copy_that_may_be_taken_back_is_no_word() {
    for steps in 0..2 {
        check(move || an_owner_dies(steps, |lane| bucket::has(lane, MOVES.0, MOVES.1)));
    }
    let takes_copies = |lane: &Lane| lane.finds(MOVES.0, MOVES.1);
    // It takes three preemptions to see it.
    let model = move || an_owner_dies(0, takes_copies);
    assert!(exhaustively(3, || sync::weakened(Weaken::Nothing, model)));
}

/// An inserter dies; its burial does it again.
#[test]
fn an_insert_is_done_again_once() {
    for steps in 0..4 {
        check(move || {
            let names = names(&[STAYS]);
            let (inserter, splitter) = (Lane::new(&names, 1), Lane::new(&names, 2));
            let again = Lane::new(&names, 3);
            let done = move || {
                let lived = mortal(steps, || inserter.insert(MOVES.0, MOVES.1));
                if !lived && !bucket::has(&again, MOVES.0, MOVES.1) {
                    again.insert(MOVES.0, MOVES.1);
                }
            };
            beside(done, move || splitter.split());
            let found: Vec<_> = words(&names).into_iter().filter(|word| word.1 == MOVES.1).collect();
            assert_eq!(found, [(1, MOVES.1, Mark::None)]);
        });
    }
}

fn two_inserts(words_before: &'static [(u32, u32)]) {
    let names = names(words_before);
    let (one, other) = (Lane::new(&names, 1), Lane::new(&names, 2));
    beside(move || one.insert(4, 4), move || other.insert(6, 6));
    let reader = Lane::new(&names, 0);
    assert!(reader.finds(4, 4) && reader.finds(6, 6), "one of two inserts was lost");
}

#[test]
fn two_inserts_find_two_places() {
    check(|| two_inserts(&[]));
    check(|| two_inserts(&[STAYS]));
}
