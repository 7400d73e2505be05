//! Splitting a bucket of the hash table of names: carries words of others to where they belong, while those
//! insert and remove them.
//!
//! One split at a time, by whoever has the split lock; if he dies, whoever buries him goes on. The state is
//! published first, with [`UNDER_WAY`]; then each word of the bucket is looked at, its tag raised (see
//! [`crate::bucket`]), and if it belongs elsewhere carried there:
//!
//! | original | copy | |
//! |---|---|---|
//! | plain | | it is marked *leaving* |
//! | leaving | | a copy is made that is marked *coming* |
//! | leaving | coming | the original is marked *left*: from here on the copy stands for it |
//! | left | coming | the copy becomes plain |
//! | left | plain | the original is emptied |
//!
//! Whoever removes the word empties the original, if he finds one, before the copy. If he does while it is
//! leaving, it can not become *left*, and the copy is taken back. A word that is inserted again is plain, so
//! it is never taken for the one that was leaving, and no copy that is coming is ever his. A copy that is
//! coming and whose original is neither leaving nor left stands for nothing: whoever goes on after a death
//! takes it back at the end, when all originals are done.
//!
//! Words that stay are carried too, from overflow buckets into room in the bucket itself.

use crate::bucket::{
    Bucket, Growing, Mark, Pair, Put, UNDER_WAY, bare, chain, emptied, exchange, hash_of, is_empty,
    is_under_way, mark_of, marked, place, put, raise_end, tagged,
};
use crate::sync::{AtomicU64, Ordering};

/// The state after the split that is due in `state`.
pub fn next_state(base: u32, state: u64) -> u64 {
    let (level, next) = (state as u32 & 31, (state >> 32) as u32 + 1);
    if next == 1 << (base + level) { u64::from(level) + 1 } else { (state & !UNDER_WAY) + (1 << 32) }
}

/// Splits the bucket that is due. The caller has the split lock, and no split is under way. False if there
/// were not enough overflow buckets: it stays under way, which makes the table slower, and [`go_on`] ends it.
pub fn split<const N: usize, T: Growing<N>>(table: &T) -> bool {
    // Relaxed: only the holder of the split lock changes it.
    let state = table.state().load(Ordering::Relaxed);
    // PAIRS: the acquire loads of the state; and raised tags, see the module of buckets.
    table.state().store(next_state(T::BASE, state) | UNDER_WAY, Ordering::Release);
    go_on(table)
}

/// Ends the split that is under way, if one is. The caller has the split lock, or buries its holder. Whether
/// none is under way any more.
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
        // PAIRS: the acquire loads of the state: who sees that it is done sees the words where they belong.
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
    /// Raises all tags and carries what belongs elsewhere; false if there was no overflow bucket for it.
    fn carry_all(&self) -> bool {
        loop {
            let mut last = self.from;
            for bucket in chain(self.table, self.from) {
                if !bucket.entries.iter().all(|entry| self.carry(bucket, entry)) {
                    return false;
                }
                last = bucket;
            }
            // If something was appended meanwhile, that is looked at too.
            if raise_end(last, self.pair.tag) {
                return true;
            }
        }
    }

    /// Where a word in a bucket of the old chain belongs.
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

    /// Raises the tag of an entry; carries its word to where it belongs. False if there is no overflow bucket
    /// for it.
    fn carry(&self, bucket: &Bucket<N>, entry: &AtomicU64) -> bool {
        loop {
            // PAIRS: the exchange that inserted it.
            let was = entry.load(Ordering::Acquire);
            let raised = tagged(was, self.pair.tag);
            let goal = self.goal(bucket, was);
            let mark = mark_of(was);
            if goal == Goal::Here || mark == Mark::None && goal == Goal::First && !self.has_room() {
                // Even if it is raised: an exchange finds what was inserted since.
                if exchange(entry, was, raised) {
                    return true;
                }
                continue;
            }
            match mark {
                Mark::Leaving => match self.copy(goal, bare(was)) {
                    Some(_) if exchange(entry, was, marked(raised, Mark::Left)) => {}
                    // It was removed.
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
                // Coming ones stay.
                Mark::None | Mark::Coming => {
                    let _ = exchange(entry, was, marked(raised, Mark::Leaving));
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.from.entries.iter().any(|entry| is_empty(entry.load(Ordering::Relaxed))) // Relaxed: a guess.
    }

    /// The coming copy of a word that leaves, made unless it is there.
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
            // Nobody else splits: the new bucket stays where it is.
            match put(self.table, self.to, copy, || true, &mut spare) {
                Put::At(entry, _) => break Some(entry),
                Put::Again => {}
                Put::Full => break None,
            }
        };
        spare.into_iter().for_each(|id| self.table.give(id));
        made
    }

    /// A copy stands for its original from now on: it becomes plain, unless it was removed.
    fn arrive(&self, copy: &AtomicU64, word: u64) {
        let was = copy.load(Ordering::Acquire);
        if tagged(was, 0) == marked(word, Mark::Coming) {
            // If it fails it was removed.
            let _ = exchange(copy, was, marked(was, Mark::None));
        }
    }

    /// Takes back copies that stand for nothing. All originals are done.
    fn take_back(&self) {
        for entry in self.from.entries.iter().chain(chain(self.table, self.to).flat_map(|to| &to.entries)) {
            let was = entry.load(Ordering::Acquire);
            if mark_of(was) == Mark::Coming {
                take_back(entry, bare(was));
            }
        }
    }
}

/// Takes a copy back that is coming, unless it was removed.
fn take_back(copy: &AtomicU64, word: u64) {
    let was = copy.load(Ordering::Acquire);
    if tagged(was, 0) == marked(word, Mark::Coming) {
        let _ = exchange(copy, was, emptied(was));
    }
}
