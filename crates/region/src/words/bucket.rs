//! Buckets of the hash table of names: one [`word`] for each entry, changed only by compare-and-swap.
//!
//! The table uses linear hashing: its state says how many buckets there are and only grows. A full bucket
//! continues in overflow buckets; an overflow bucket that was linked into a chain stays there. A word belongs
//! to the lane that holds the lock of the entry's directory, or that buries that holder: only this lane
//! inserts and removes it. A split carries words of other lanes ([`crate::split`]). No lane waits for
//! another.
//!
//! A word is a hint: the entry's record says whether the entry is alive, and under which name. So an entry
//! may be in the table before it is born and after it has died. The table guarantees only that the word of a
//! live entry is found.
//!
//! *Insert and split.* A split publishes its state first, and then raises the tag of every word of the
//! bucket, including the empty words and the end of the chain. An insert loads an empty word, checks that the
//! state still leads here, and swaps the word. If the tag was raised before the check, the insert sees the
//! new state; if after it, the swap fails; if neither, the split finds the inserted word. A bucket is split
//! at most once for each value of a tag, so there is no ABA.
//!
//! *Lookup and split.* A split carries words away from the bucket, and from its overflow buckets into free
//! words of the bucket itself; the copy exists before the original disappears. A lookup that found nothing is
//! conclusive if the state did not change. While a split is under way, a lookup reads the places that words
//! leave before the places where they arrive ([`way`]).
//!
//! *Remove and split.* See [`crate::split`].
//!
//! Linearisation points: none; they are those of the records. Progress: lock-free; a lookup that finds
//! nothing is repeated only when a split began or ended meanwhile. Reclamation: none. Slots are type-stable
//! and overflow buckets stay, so there are as many as the largest set of names that the table ever held
//! needed. Source: Litwin, "Linear hashing" (VLDB 1980); Michael, "High performance dynamic lock-free hash
//! tables" (SPAA 2002).

use crate::sync::{AtomicU32, AtomicU64, Ordering, acquire_fence};

/// Bits of an entry's number in a word.
pub(crate) const ID_BITS: u32 = 24;
/// Bits of an overflow bucket's number in [`Bucket::next`].
pub(crate) const NEXT_BITS: u32 = 20;

const ID: u64 = (1 << ID_BITS) - 1;
/// The tag: how often the bucket had been split when a split last visited the word.
const TAG_AT: u32 = ID_BITS;
const TAG: u64 = 15 << TAG_AT;
const MARK_AT: u32 = TAG_AT + 4;
const MARK: u64 = 3 << MARK_AT;
const NEXT: u32 = (1 << NEXT_BITS) - 1;
const NEXT_TAG: u32 = 15 << NEXT_BITS;

/// State of a word during a split; see [`crate::split`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// Not part of a split.
    None,
    /// Being carried away. A removal of the word stops that.
    Leaving,
    /// Replaced by its copy.
    Left,
    /// A copy of a word that is leaving or has left.
    Coming,
}

/// A bucket: one cache line. Its words are changed by compare-and-swap.
#[repr(C, align(64))]
pub struct Bucket<const N: usize> {
    /// Next overflow bucket of the chain, with a tag; in a free overflow bucket, the slab's link. Atomic.
    pub next: AtomicU32,
    /// Spare.
    pub spare: [AtomicU32; 3],
    /// [Words](word). Atomic.
    pub entries: [AtomicU64; N],
}

impl<const N: usize> Bucket<N> {
    /// An empty bucket.
    pub fn new() -> Self {
        Bucket {
            next: AtomicU32::new(0),
            spare: core::array::from_fn(|_| AtomicU32::new(0)),
            entries: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Empties a bucket that is in no chain.
    pub fn clear(&self) {
        self.next.store(0, Ordering::Relaxed); // Relaxed: published by the exchange that links it in.
        self.entries.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
    }

    /// Index of the next overflow bucket; 0 if none.
    #[inline(always)]
    pub fn next_index(&self) -> u32 {
        self.next.load(Ordering::Relaxed) & NEXT // Relaxed: who follows loads it again.
    }
}

impl<const N: usize> Default for Bucket<N> {
    fn default() -> Self {
        Bucket::new()
    }
}

/// The word of an entry, without tag and mark.
#[inline(always)]
pub fn word(hash: u32, id: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(id)
}

/// The hash in a word.
#[inline(always)]
pub fn hash_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The entry's number in a word, or in its low half; 0 if it is empty.
#[inline(always)]
pub fn id_of(word: u32) -> u32 {
    word & ID as u32
}

/// The mark of a word.
pub fn mark_of(word: u64) -> Mark {
    match word >> MARK_AT & 3 {
        0 => Mark::None,
        1 => Mark::Leaving,
        2 => Mark::Left,
        _ => Mark::Coming,
    }
}

/// A word with another mark.
pub(crate) fn marked(word: u64, mark: Mark) -> u64 {
    word & !MARK | (mark as u64) << MARK_AT
}

/// A word with another tag.
pub(crate) fn tagged(word: u64, tag: u32) -> u64 {
    word & !TAG | u64::from(tag) << TAG_AT
}

/// A word after its entry is gone.
#[inline(always)]
pub(crate) fn emptied(word: u64) -> u64 {
    word & TAG
}

/// The hash and the entry's number of a word, without the bits in between.
#[inline(always)]
pub fn bare(word: u64) -> u64 {
    word & !(u64::from(u32::MAX) & !ID)
}

/// Whether a word is empty.
#[inline(always)]
pub fn is_empty(word: u64) -> bool {
    word & ID == 0
}

/// Bit of a state that is set while the last split is under way.
pub const UNDER_WAY: u64 = 1 << 31;

/// Whether a split is under way.
#[inline(always)]
pub fn is_under_way(state: u64) -> bool {
    state & UNDER_WAY != 0
}

/// Index of the bucket that holds `hash` in this state, if an empty table has `1 << base` buckets: the hash's
/// low bits, and one more bit below the bucket that is split next.
#[inline(always)]
pub fn place(base: u32, state: u64, hash: u32) -> u32 {
    // The shift counts modulo 32, so it ignores `UNDER_WAY`.
    let mask = (1u32 << base).wrapping_shl(state as u32).wrapping_sub(1);
    let index = hash & mask;
    if index < (state >> 32) as u32 { hash & (mask << 1 | 1) } else { index }
}

/// The bucket that was split last and the one that it was split into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The bucket that words leave.
    pub from: u32,
    /// The bucket where they arrive.
    pub to: u32,
    /// Upper bound of how many times `from` has been split.
    pub tag: u32,
}

impl Pair {
    /// The buckets of the split that led to a state.
    pub fn of(base: u32, state: u64) -> Pair {
        let (level, next) = (state as u32 & 31, (state >> 32) as u32);
        let (level, from) = match next {
            0 => (
                level.saturating_sub(1),
                (1u32 << base).wrapping_shl(level.saturating_sub(1)).wrapping_sub(1),
            ),
            next => (level, next - 1),
        };
        Pair { from, to: from.wrapping_add((1u32 << base).wrapping_shl(level)), tag: (level + 1) & 15 }
    }
}

/// A hash table.
pub trait HashTable<const N: usize> {
    /// Buckets of an empty table, as a power of two.
    const BASE: u32;
    /// Maximum number of overflow buckets in a chain.
    const MOST: usize;
    /// Level in the low half, the next bucket to split in the high one, and [`UNDER_WAY`].
    fn state(&self) -> &AtomicU64;
    /// A bucket.
    fn first(&self, index: u32) -> &Bucket<N>;
    /// An overflow bucket.
    fn overflow(&self, id: u32) -> &Bucket<N>;
}

/// A table that can allocate overflow buckets.
pub trait Growing<const N: usize>: HashTable<N> {
    /// Allocates an empty bucket that is in no chain, for the caller to link in; none if there are no more.
    fn take(&self) -> Option<u32>;
    /// Reports that the bucket last taken is in a chain.
    fn linked(&self);
    /// Frees a bucket that was taken and not linked in.
    fn give(&self, id: u32);
}

/// The buckets of a chain. Bounded, because a damaged region may contain a ring.
pub fn chain<'t, const N: usize, T: HashTable<N>>(
    table: &'t T,
    first: &'t Bucket<N>,
) -> impl Iterator<Item = &'t Bucket<N>> {
    core::iter::successors(Some(first), |bucket| {
        // PAIRS: the release exchange in `append`: the bucket is filled in.
        let next = bucket.next.load(Ordering::Acquire) & NEXT;
        (next != 0).then(|| table.overflow(next))
    })
    .take(T::MOST)
}

/// The buckets that may hold a hash's words in this state: those that words leave come first.
pub fn way<const N: usize, T: HashTable<N>>(
    table: &T,
    state: u64,
    hash: u32,
) -> impl Iterator<Item = &Bucket<N>> {
    let index = place(T::BASE, state, hash);
    let pair = Pair::of(T::BASE, state);
    let split = is_under_way(state) && (index == pair.from || index == pair.to);
    let source = split.then(|| table.first(pair.from));
    let rest = (!split || index == pair.to).then(|| table.first(index));
    let source = source.into_iter().flat_map(|from| chain(table, from).skip(1).chain(core::iter::once(from)));
    source.chain(rest.into_iter().flat_map(|first| chain(table, first)))
}

/// Result of a lookup in one bucket: what was found, and whether that is conclusive.
pub type Look<H> = (Option<H>, bool);

/// Looks once with `scan`, which reads one bucket, in the bucket that the state leads to. A miss is
/// conclusive only if the word cannot be elsewhere; otherwise the caller retries with [`look_slow`].
#[inline(always)]
pub fn look<const N: usize, T: HashTable<N>, H>(
    table: &T,
    hash: u32,
    scan: impl FnOnce(&Bucket<N>) -> Look<H>,
) -> Look<H> {
    // PAIRS: the release stores in `split`. A reader that sees a state sees the words where it leads.
    let seen = table.state().load(Ordering::Acquire);
    let bucket = table.first(place(T::BASE, seen, hash));
    let (hit, certain) = scan(bucket);
    if hit.is_some() || !certain {
        return (hit, certain);
    }
    (None, is_all(table, (seen, bucket)))
}

/// Whether a word that is not in the bucket to which a state led was nowhere when the bucket was read.
#[inline(always)]
pub fn is_all<const N: usize, T: HashTable<N>>(table: &T, (seen, bucket): (u64, &Bucket<N>)) -> bool {
    bucket.next_index() == 0 && !is_under_way(seen) && stands_at(table.state(), seen)
}

/// Looks once in all buckets that may hold a hash's words.
pub fn look_slow<const N: usize, T: HashTable<N>, H>(
    table: &T,
    hash: u32,
    mut scan: impl FnMut(&Bucket<N>) -> Look<H>,
) -> Look<H> {
    // PAIRS: as in `look`.
    let seen = table.state().load(Ordering::Acquire);
    for bucket in way(table, seen, hash) {
        let (hit, certain) = scan(bucket);
        if hit.is_some() || !certain {
            return (hit, certain);
        }
        // PAIRS: the exchanges in `split`. A reader that saw an original gone sees its copy.
        acquire_fence();
    }
    (None, stands_at(table.state(), seen))
}

/// Whether no split began or ended since the state was `seen`.
#[inline(always)]
fn stands_at(state: &AtomicU64, seen: u64) -> bool {
    // PAIRS: the exchanges in `split`. A reader that saw a word gone sees the state published before.
    acquire_fence();
    state.load(Ordering::Relaxed) == seen // Relaxed: ordered by the fence.
}

/// Where an insert found a free word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vacancy {
    /// In the bucket itself.
    First,
    /// In an overflow bucket.
    Overflow,
}

/// Inserts an entry that is not in the table. The caller holds the lock of the entry's directory. `None` if
/// no overflow buckets are left.
#[inline(always)]
pub fn insert<const N: usize, T: Growing<N>>(table: &T, hash: u32, id: u32) -> Option<Vacancy> {
    // PAIRS: as in `look`.
    let seen = table.state().load(Ordering::Acquire);
    insert_in(table, (seen, table.first(place(T::BASE, seen, hash))), word(hash, id))
}

/// [`insert`] of a word in the bucket to which a state led.
#[inline(always)]
pub fn insert_in<const N: usize, T: Growing<N>>(
    table: &T,
    (seen, first): (u64, &Bucket<N>),
    word: u64,
) -> Option<Vacancy> {
    let state = table.state();
    for entry in &first.entries {
        // PAIRS: the exchange in `split::carry_all`. A lane that sees the raised tag sees the new state.
        let was = entry.load(Ordering::Acquire);
        if is_empty(was) {
            // Relaxed: ordered by the load above.
            if state.load(Ordering::Relaxed) == seen && exchange(entry, was, word | was) {
                return Some(Vacancy::First);
            }
            break;
        }
    }
    insert_slow(table, word)
}

/// Swaps a word; returns whether it was still `was`.
#[inline(always)]
pub(crate) fn exchange(entry: &AtomicU64, was: u64, word: u64) -> bool {
    // PAIRS: acquire loads of words. A reader that sees this word sees the entry filled in, and the state
    // published before.
    entry.compare_exchange(was, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cold]
fn insert_slow<const N: usize, T: Growing<N>>(table: &T, word: u64) -> Option<Vacancy> {
    let mut spare = None;
    let room = loop {
        // PAIRS: as in `look`.
        let seen = table.state().load(Ordering::Acquire);
        let first = table.first(place(T::BASE, seen, hash_of(word)));
        // Relaxed: ordered by the loads of the words.
        let still = || table.state().load(Ordering::Relaxed) == seen;
        match put(table, first, word, still, &mut spare) {
            Put::At(_, room) => break Some(room),
            Put::Again => {}
            Put::Full => break None,
        }
    };
    spare.into_iter().for_each(|id| table.give(id));
    room
}

/// Result of an attempt to put a word into a chain.
pub(crate) enum Put<'t> {
    /// The word is here.
    At(&'t AtomicU64, Vacancy),
    /// The chain has changed; retry.
    Again,
    /// No overflow bucket is available.
    Full,
}

/// Puts a word into a chain if `still` holds after each load of an empty word. An overflow bucket that was
/// taken and not linked in is left in `spare`.
pub(crate) fn put<'t, const N: usize, T: Growing<N>>(
    table: &'t T,
    first: &'t Bucket<N>,
    word: u64,
    still: impl Fn() -> bool,
    spare: &mut Option<u32>,
) -> Put<'t> {
    let mut last = first;
    for bucket in chain(table, first) {
        for entry in &bucket.entries {
            // PAIRS: as in `insert`.
            let was = entry.load(Ordering::Acquire);
            if !is_empty(was) {
                continue;
            }
            if !still() {
                return Put::Again;
            }
            if exchange(entry, was, word | was) {
                let room = if core::ptr::eq(bucket, first) { Vacancy::First } else { Vacancy::Overflow };
                return Put::At(entry, room);
            }
        }
        last = bucket;
    }
    append(table, last, word, still, spare)
}

fn append<'t, const N: usize, T: Growing<N>>(
    table: &'t T,
    last: &'t Bucket<N>,
    word: u64,
    still: impl Fn() -> bool,
    spare: &mut Option<u32>,
) -> Put<'t> {
    // PAIRS: the exchange in `split::raise_end`.
    let end = last.next.load(Ordering::Acquire);
    if end & NEXT != 0 || !still() {
        return Put::Again;
    }
    if spare.is_none() {
        *spare = table.take();
    }
    let Some(id) = *spare else { return Put::Full };
    let entry = &table.overflow(id).entries[0];
    entry.store(word, Ordering::Relaxed); // Relaxed: published by the exchange.
    // PAIRS: the acquire load in `chain`.
    if last.next.compare_exchange(end, end | id & NEXT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Put::Again;
    }
    table.linked();
    *spare = None;
    Put::At(entry, Vacancy::Overflow)
}

/// Raises the tag of the end of a chain if `bucket` is its last bucket; returns whether it is.
pub(crate) fn raise_end<const N: usize>(bucket: &Bucket<N>, tag: u32) -> bool {
    // Relaxed: the exchange decides.
    let end = bucket.next.load(Ordering::Relaxed);
    // PAIRS: the acquire load in `append`.
    end & NEXT == 0
        && bucket
            .next
            .compare_exchange(end, (tag << NEXT_BITS) & NEXT_TAG, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

/// Whether the word of an entry is in the table. The caller holds the lock of the entry's directory, or
/// buries that holder.
pub fn has<const N: usize, T: HashTable<N>>(table: &T, hash: u32, id: u32) -> bool {
    let word = word(hash, id);
    loop {
        let mut has_left = false;
        // Neither a coming copy nor an original that has left counts alone: the copy may be taken back, and
        // the copy that replaced the original may have been removed. The original is read first.
        let mut is_it = |entry: &AtomicU64| {
            let has = entry.load(Ordering::Acquire);
            match mark_of(has) {
                _ if bare(has) != word => false,
                Mark::None | Mark::Leaving => true,
                Mark::Coming => has_left,
                Mark::Left => {
                    has_left = true;
                    false
                }
            }
        };
        let scan = |bucket: &Bucket<N>| (bucket.entries.iter().any(&mut is_it).then_some(()), true);
        let (found, certain) = look_slow(table, hash, scan);
        if certain {
            return found.is_some();
        }
    }
}

/// Removes an entry's word. The caller holds the lock of the entry's directory, or buries that holder, and
/// the entry is dead.
#[inline(always)]
pub fn remove<const N: usize, T: HashTable<N>>(table: &T, hash: u32, id: u32) {
    let word = word(hash, id);
    // PAIRS: as in `look`.
    let seen = table.state().load(Ordering::Acquire);
    for entry in &table.first(place(T::BASE, seen, hash)).entries {
        let was = entry.load(Ordering::Relaxed); // Relaxed: the word is the caller's.
        if was & !TAG == word {
            // A word without a mark is the only one: a copy is made only once the original is marked.
            if exchange(entry, was, emptied(was)) {
                return;
            }
            break;
        }
    }
    remove_slow(table, word);
}

/// [`remove`] of an entry whose word was found here.
#[inline(always)]
pub fn remove_at<const N: usize, T: HashTable<N>>(table: &T, entry: &AtomicU64, word: u64) {
    // As in `remove`.
    let was = entry.load(Ordering::Relaxed);
    if was & !TAG != word || !exchange(entry, was, emptied(was)) {
        remove_slow(table, word);
    }
}

/// Removes a word and its copy, if there is one. Originals first, so that no copy replaces them.
#[cold]
fn remove_slow<const N: usize, T: HashTable<N>>(table: &T, word: u64) {
    loop {
        // PAIRS: as in `look`.
        let seen = table.state().load(Ordering::Acquire);
        for bucket in way(table, seen, hash_of(word)) {
            bucket.entries.iter().for_each(|entry| take_out(entry, word));
        }
        if stands_at(table.state(), seen) {
            return;
        }
    }
}

/// Empties a table entry if it holds this word, whatever its tag and mark.
fn take_out(entry: &AtomicU64, word: u64) {
    loop {
        let was = entry.load(Ordering::Acquire);
        if bare(was) != word || exchange(entry, was, emptied(was)) {
            return;
        }
    }
}
