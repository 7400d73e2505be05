//! Splitting a bucket of the hash table of names: carries words of other lanes to their new places while
//! those lanes insert and remove them.
//!
//! The holder of the split lock makes one split at a time; if it dies, its burial goes on. The state is
//! published first, with [`UNDER_WAY`]. Then each word of the bucket is visited, its tag is raised (see
//! [`crate::bucket`]), and if it belongs elsewhere it is carried there:
//!
//! | original | copy | step |
//! |---|---|---|
//! | plain | | it is marked *leaving* |
//! | leaving | | a copy is made that is marked *coming* |
//! | leaving | coming | the original is marked *left*: from here on the copy represents the word |
//! | left | coming | the copy becomes plain |
//! | left | plain | the original is emptied |
//!
//! A lane that removes the word empties the original, if it finds one, before the copy. If it does so while
//! the original is leaving, the original cannot become *left*, and the copy is taken back. A word that is
//! inserted again is plain, so it is never mistaken for the one that was leaving, and no coming copy ever
//! belongs to it. A coming copy whose original is neither leaving nor left represents nothing: a split that
//! goes on after a death takes it back at the end, when all originals are done.
//!
//! Words that stay are carried too, from overflow buckets into free words of the bucket itself.

use crate::bucket::{
    Bucket, Growing, Mark, Pair, Put, UNDER_WAY, bare, chain, emptied, exchange, hash_of, is_empty,
    is_under_way, mark_of, marked, place, put, raise_end, tagged,
};
use crate::sync::{AtomicU64, Ordering};

/// The state after the next split.
pub fn next_state(base: u32, state: u64) -> u64 {
    let (level, next) = (state as u32 & 31, (state >> 32) as u32 + 1);
    if next == 1 << (base + level) { u64::from(level) + 1 } else { (state & !UNDER_WAY) + (1 << 32) }
}

/// Splits the bucket that is due. The caller holds the split lock, and no split is under way. False if there
/// were not enough overflow buckets: the split stays under way, which makes the table slower, and [`go_on`]
/// finishes it.
pub fn split<const N: usize, T: Growing<N>>(table: &T) -> bool {
    // Relaxed: only the holder of the split lock changes it.
    let state = table.state().load(Ordering::Relaxed);
    // PAIRS: the acquire loads of the state; and raised tags, see the module of buckets.
    table.state().store(next_state(T::BASE, state) | UNDER_WAY, Ordering::Release);
    go_on(table)
}

/// Finishes the split that is under way, if there is one. The caller holds the split lock, or buries its
/// holder. Returns whether no split is under way any more.
pub fn go_on<const N: usize, T: Growing<N>>(table: &T) -> bool {
    let state = table.state().load(Ordering::Relaxed); // Relaxed: as above.
    if !is_under_way(state) {
        return true;
    }
    let pair = Pair::of(T::BASE, state);
    let split = Split { table, state, pair, from: table.first(pair.from), to: table.first(pair.to) };
    let is_done = split.carry_all();
    if is_done {
        split.take_back();
        // PAIRS: the acquire loads of the state. A reader that sees the split done sees the words where they
        // belong.
        table.state().store(state & !UNDER_WAY, Ordering::Release);
    }
    is_done
}

struct Split<'t, const N: usize, T> {
    table: &'t T,
    state: u64,
    pair: Pair,
    from: &'t Bucket<N>,
    to: &'t Bucket<N>,
}

/// Where a word of the old bucket belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// It stays where it is.
    Here,
    /// In the bucket itself, if there is room.
    First,
    /// In the new bucket.
    New,
}

impl<'t, const N: usize, T: Growing<N>> Split<'t, N, T> {
    /// Raises all tags and carries the words that belong elsewhere; false if there was no overflow bucket for
    /// one.
    fn carry_all(&self) -> bool {
        loop {
            let mut last = self.from;
            for bucket in chain(self.table, self.from) {
                if !bucket.entries.iter().all(|entry| self.carry(bucket, entry)) {
                    return false;
                }
                last = bucket;
            }
            // If something was appended meanwhile, it is visited too.
            if raise_end(last, self.pair.tag) {
                return true;
            }
        }
    }

    /// The goal of a word in a bucket of the old chain.
    fn goal(&self, bucket: &Bucket<N>, word: u64) -> Goal {
        let is_first = core::ptr::eq(bucket, self.from);
        if is_empty(word) || mark_of(word) == Mark::Coming {
            Goal::Here
        } else if place(T::BASE, self.state, hash_of(word)) == self.pair.to {
            Goal::New
        } else if is_first {
            Goal::Here
        } else {
            Goal::First
        }
    }

    /// Raises the tag of an entry and carries its word to its goal. False if there is no overflow bucket for
    /// it.
    fn carry(&self, bucket: &Bucket<N>, entry: &AtomicU64) -> bool {
        loop {
            // PAIRS: the exchange that inserted it.
            let was = entry.load(Ordering::Acquire);
            let raised = tagged(was, self.pair.tag);
            let goal = self.goal(bucket, was);
            let mark = mark_of(was);
            if goal == Goal::Here || mark == Mark::None && goal == Goal::First && !self.has_room() {
                // Swapped even if the tag is already raised, to detect words inserted since.
                if exchange(entry, was, raised) {
                    return true;
                }
                continue;
            }
            match mark {
                Mark::Leaving => match self.copy(goal, bare(was)) {
                    Some(_) if exchange(entry, was, marked(raised, Mark::Left)) => {}
                    // The word was removed.
                    Some(copy) => take_back(copy, bare(was)),
                    None => {
                        let _ = exchange(entry, was, marked(raised, Mark::None));
                        if goal == Goal::New {
                            return false;
                        }
                    }
                },
                Mark::Left => {
                    if let Some(copy) = self.coming(goal, bare(was)) {
                        self.arrive(copy, bare(was));
                    }
                    let _ = exchange(entry, was, emptied(raised));
                }
                // Coming copies stay.
                Mark::None | Mark::Coming => {
                    let _ = exchange(entry, was, marked(raised, Mark::Leaving));
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.from.entries.iter().any(|entry| is_empty(entry.load(Ordering::Relaxed))) // Relaxed: a guess.
    }

    /// The coming copy of a leaving word; creates it unless it exists.
    fn copy(&self, goal: Goal, word: u64) -> Option<&'t AtomicU64> {
        self.coming(goal, word).or_else(|| self.make(goal, marked(word, Mark::Coming)))
    }

    fn coming(&self, goal: Goal, word: u64) -> Option<&'t AtomicU64> {
        let coming = marked(word, Mark::Coming);
        let is_it = |entry: &&AtomicU64| tagged(entry.load(Ordering::Acquire), 0) == coming;
        if goal == Goal::First {
            return self.from.entries.iter().find(is_it);
        }
        chain(self.table, self.to).flat_map(|bucket| bucket.entries.iter()).find(is_it)
    }

    fn make(&self, goal: Goal, copy: u64) -> Option<&'t AtomicU64> {
        if goal == Goal::First {
            let take = |entry: &&AtomicU64| {
                let was = entry.load(Ordering::Acquire);
                is_empty(was) && exchange(entry, was, copy | was)
            };
            return self.from.entries.iter().find(take);
        }
        let mut spare = None;
        let made = loop {
            // No other lane splits, so the new bucket does not change.
            match put(self.table, self.to, copy, || true, &mut spare) {
                Put::At(entry, _) => break Some(entry),
                Put::Again => {}
                Put::Full => break None,
            }
        };
        spare.into_iter().for_each(|id| self.table.give(id));
        made
    }

    /// Makes a copy plain, unless the word was removed: from now on it represents the word.
    fn arrive(&self, copy: &AtomicU64, word: u64) {
        let was = copy.load(Ordering::Acquire);
        if tagged(was, 0) == marked(word, Mark::Coming) {
            // It fails only if the word was removed.
            let _ = exchange(copy, was, marked(was, Mark::None));
        }
    }

    /// Takes back copies that represent nothing. All originals are done.
    fn take_back(&self) {
        for entry in self.from.entries.iter().chain(chain(self.table, self.to).flat_map(|to| &to.entries)) {
            let was = entry.load(Ordering::Acquire);
            if mark_of(was) == Mark::Coming {
                take_back(entry, bare(was));
            }
        }
    }
}

/// Takes back a coming copy, unless the word was removed.
fn take_back(copy: &AtomicU64, word: u64) {
    let was = copy.load(Ordering::Acquire);
    if tagged(was, 0) == marked(word, Mark::Coming) {
        let _ = exchange(copy, was, emptied(was));
    }
}
