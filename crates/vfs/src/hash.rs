//! The hash table that finds entries by directory and name: linear hashing over [`Bucket`] lines.
//!
//! Like Linux's `dentry_hashtable`, but it is the directory itself, not a cache of it. `header.hash_state` holds how
//! many buckets there are: `1 << (BASE_LEVEL + level)`, plus `next` more. A hash belongs to the bucket of its low
//! bits; buckets below `next` are split already and take one bit more. An insert that meets a full bucket splits
//! bucket `next` into itself and a new one at the end; buckets are never joined again.
//!
//! Lookup takes no lock and writes nothing; [`probe`] has its order of steps and `crates/models` its model. An entry
//! found while the bucket's count stood still was in the table at that moment: an entry is taken out, under an odd
//! count, before its slot is given back. Progress: delayed only by a writer of the same bucket that runs; after
//! [`SPINS`] tries the answer is taken as seen, which is right but for a name that is moved within its bucket at that
//! very moment. No single step of an insert, removal or split makes another name disappear.
//!
//! Insert and removal change one word under the bucket's lock. What a dead lane left is done again by
//! [`crate::change::replay`] and [`replay_split`].

use core::num::{NonZeroU32, NonZeroU64};

use lp_abi::Result;
use lp_region::lane::Lane;
use lp_region::layout::{BUCKETS, BUCKETS_AT, OVERFLOWS};
use lp_region::probe;
use lp_region::records::{Bucket, Dirent};
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_region::{DirentId, InodeId, InodeRef, LaneId, OverflowId, Region};

use crate::dirent;
use crate::intent::{self, op};
use crate::name::{Name, Place};
use crate::task::Task;

/// Buckets of an empty table, as a power of two: one page.
pub const BASE_LEVEL: u32 = 6;

/// Bits of a hash that the largest table uses.
pub const MAX_LEVEL: u32 = BUCKETS.trailing_zeros();

/// Tries before a lookup takes its answer as seen.
const SPINS: u32 = 2000;

/// What a name stands for. Two words, so that it travels in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    target: u64,
    /// The entry in the low half, the type in the high one. No entry is 0.
    entry: NonZeroU64,
}

impl Hit {
    /// What entry `id` names now.
    #[inline(always)]
    fn read(record: &Dirent, id: NonZeroU32) -> Self {
        let entry = NonZeroU64::from(id) | (dirent::kind(record) as u64) << 32;
        Hit { target: dirent::target(record).to_word(), entry }
    }

    /// The entry.
    #[inline(always)]
    pub fn dirent(self) -> DirentId {
        DirentId(self.entry.get() as u32)
    }

    /// What it named when it was read.
    #[inline(always)]
    pub fn target(self) -> InodeRef {
        InodeRef::from_word(self.target)
    }

    /// Type of that, as `d_type`.
    #[inline(always)]
    pub fn kind(self) -> u32 {
        (self.entry.get() >> 32) as u32
    }
}

/// Whether a table should grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// The entry found room in its bucket's first line.
    Fits,
    /// It did not: call [`split`] once no locks are held.
    Crowded,
}

/// Finds `name` in directory `dir`.
#[inline]
pub fn lookup(region: Region<'_>, dir: InodeId, name: &Name<'_>) -> Option<Hit> {
    find(region, dir, name, name.hash(dir))
}

/// [`lookup`] of a name whose hash is at hand.
#[inline]
pub fn lookup_at(region: Region<'_>, place: &Place<'_, '_>) -> Option<Hit> {
    find(region, place.dir, place.name, place.hash)
}

/// Has the bucket of a hash fetched into the cache: a lookup of it comes soon.
#[inline(always)]
pub fn prefetch(region: Region<'_>, hash: u32) {
    // Relaxed: a guess.
    let state = region.header().hash_state.load(Ordering::Relaxed);
    lp_region::sync::prefetch(region.bucket(place(state, hash)));
}

#[inline(never)]
fn find(region: Region<'_>, dir: InodeId, name: &Name<'_>, hash: u32) -> Option<Hit> {
    let seq = |index| &region.bucket(index).seq;
    let state = &region.header().hash_state;
    let (hit, certain) = probe::look(
        state,
        |state| place(state, hash),
        seq,
        |index| in_bucket(region, index, dir, name, hash),
    );
    if certain { hit } else { find_slow(region, dir, name, hash) }
}

#[cold]
fn find_slow(region: Region<'_>, dir: InodeId, name: &Name<'_>, hash: u32) -> Option<Hit> {
    let seq = |index| &region.bucket(index).seq;
    let state = &region.header().hash_state;
    let mut tries = 0;
    loop {
        lp_region::sync::spin();
        let (hit, certain) = probe::look(
            state,
            |state| place(state, hash),
            seq,
            |index| in_bucket(region, index, dir, name, hash),
        );
        tries += 1;
        // In the end a writer was stopped in the middle of a change; see the module for what is true then.
        if certain || tries > SPINS {
            return hit;
        }
    }
}

/// What a name stands for according to one bucket and its chain.
#[inline(always)]
fn in_bucket(region: Region<'_>, index: u32, dir: InodeId, name: &Name<'_>, hash: u32) -> Option<Hit> {
    let bucket = region.bucket(index);
    let hit = scan(region, bucket, dir, name, hash);
    if hit.is_none() && bucket.next.load(Ordering::Relaxed) != 0 {
        return scan_overflow(region, bucket, dir, name, hash);
    }
    hit
}

#[inline(always)]
fn scan(region: Region<'_>, bucket: &Bucket, dir: InodeId, name: &Name<'_>, hash: u32) -> Option<Hit> {
    for entry in &bucket.entries {
        if high(entry).load(Ordering::Relaxed) != hash {
            continue;
        }
        // PAIRS: the release store in `Chain::insert`: the entry is filled in.
        let Some(id) = NonZeroU32::new(entry.load(Ordering::Acquire) as u32) else { continue };
        let record = region.dirent(DirentId(id.get()));
        if dirent::is(region, record, dir, name) {
            return Some(Hit::read(record, id));
        }
    }
    None
}

/// The hash in an entry's word.
#[inline(always)]
fn high(entry: &AtomicU64) -> &AtomicU32 {
    // SAFETY: the high half of a little-endian word, which lives as long as the word. A stale half only misleads the
    // comparison that follows, or is found out by the count.
    unsafe { &*(&raw const *entry).cast::<AtomicU32>().add(1) }
}

#[cold]
fn scan_overflow(
    region: Region<'_>,
    first: &Bucket,
    dir: InodeId,
    name: &Name<'_>,
    hash: u32,
) -> Option<Hit> {
    chain(region, first).skip(1).find_map(|bucket| scan(region, bucket, dir, name, hash))
}

/// The buckets of a chain. Bounded: a damaged region may hold a ring.
fn chain<'r>(region: Region<'r>, first: &'r Bucket) -> impl Iterator<Item = &'r Bucket> {
    core::iter::successors(Some(first), move |bucket| {
        // PAIRS: the release store in `append`.
        let next = OverflowId(bucket.next.load(Ordering::Acquire));
        next.is_some().then(|| region.overflow(next))
    })
    .take(OVERFLOWS)
}

/// Index of the bucket that holds `hash` in this state.
#[inline(always)]
pub fn place(state: u64, hash: u32) -> u32 {
    let mask = (1u32 << BASE_LEVEL).wrapping_shl(state as u32).wrapping_sub(1);
    let index = hash & mask;
    if index < (state >> 32) as u32 { hash & (mask << 1 | 1) } else { index }
}

/// Makes sure that the next insert of this lane finds an overflow bucket if it needs one.
///
/// # Errors
/// `ENOSPC`.
#[inline]
pub fn reserve(region: Region<'_>, lane: &Lane) -> Result<()> {
    if lane.caches[Bucket::SLAB].count.load(Ordering::Relaxed) == 0 {
        let id = region.take::<Bucket>(lane)?;
        region.give::<Bucket>(lane, id);
        region.settle::<Bucket>(lane);
    }
    Ok(())
}

/// The chain of a hash while its bucket is locked and its count odd.
#[derive(Clone, Copy)]
pub struct Chain<'r> {
    region: Region<'r>,
    lane: &'r Lane,
    first: &'r Bucket,
}

impl<'r> Chain<'r> {
    fn begin(task: &Task<'r>, first: &'r Bucket) -> Self {
        first.seq.begin();
        Chain { region: task.region, lane: task.lane, first }
    }

    fn end(self) {
        self.first.seq.end();
        self.first.lock.unlock();
    }

    /// Links an entry in, unless it is.
    #[inline]
    pub fn insert(&self, hash: u32, id: DirentId) -> Load {
        let word = word(hash, id);
        if self.first.next.load(Ordering::Relaxed) == 0 {
            let mut room: Option<&AtomicU64> = None;
            for entry in self.first.entries.iter().rev() {
                match entry.load(Ordering::Relaxed) {
                    0 => room = Some(entry),
                    seen if seen == word => return Load::Fits,
                    _ => {}
                }
            }
            if let Some(entry) = room {
                // PAIRS: the acquire load in `scan`.
                entry.store(word, Ordering::Release);
                return Load::Fits;
            }
        }
        // The caller reserved an overflow bucket; only a damaged region has none, and loses the name.
        insert_locked(self.region, self.lane, self.first, word).unwrap_or(Load::Crowded)
    }

    /// Takes an entry out.
    #[inline]
    pub fn remove(&self, hash: u32, id: DirentId) {
        let word = word(hash, id);
        if self.first.next.load(Ordering::Relaxed) != 0 {
            return remove_slow(self.region, self.lane, self.first, word);
        }
        if let Some(entry) = self.first.entries.iter().find(|entry| entry.load(Ordering::Relaxed) == word) {
            entry.store(0, Ordering::Release);
        }
    }
}

/// What stands in a bucket for an entry.
#[inline(always)]
fn word(hash: u32, id: DirentId) -> u64 {
    (hash as u64) << 32 | id.0 as u64
}

/// Runs `change` while the chain of a hash may change: one event to readers. The caller holds the lock of the directory
/// concerned and has called [`reserve`]. A bucket that lane `dead` died with counts as locked; see [`intent::lock`].
#[inline]
pub fn change<'r, T>(task: &Task<'r>, hash: u32, dead: LaneId, change: impl FnOnce(&Chain<'r>) -> T) -> T {
    let state = &task.region.header().hash_state;
    let first = loop {
        let seen = state.load(Ordering::Acquire);
        let index = place(seen, hash);
        let first = task.region.bucket(index);
        intent::lock(task, &first.lock, dead);
        let now = state.load(Ordering::Acquire);
        if now == seen || place(now, hash) == index {
            break first;
        }
        first.lock.unlock();
    };
    let chain = Chain::begin(task, first);
    let done = change(&chain);
    chain.end();
    done
}

/// [`change`] of the chains of two hashes, which may be one chain.
pub fn change_both<'r, T>(
    task: &Task<'r>,
    [one, other]: [u32; 2],
    dead: LaneId,
    change: impl FnOnce(&Chain<'r>, &Chain<'r>) -> T,
) -> T {
    let state = &task.region.header().hash_state;
    let places = |state: u64| (place(state, one), place(state, other));
    let bucket = |index: u32| task.region.bucket(index);
    let (a, b) = loop {
        let seen = state.load(Ordering::Acquire);
        let (a, b) = places(seen);
        intent::lock(task, &bucket(a.min(b)).lock, dead);
        if a != b {
            intent::lock(task, &bucket(a.max(b)).lock, dead);
        }
        let now = state.load(Ordering::Acquire);
        if now == seen || places(now) == (a, b) {
            break (a, b);
        }
        if a != b {
            bucket(a.max(b)).lock.unlock();
        }
        bucket(a.min(b)).lock.unlock();
    };
    let one = Chain::begin(task, bucket(a));
    let other = if a == b { one } else { Chain::begin(task, bucket(b)) };
    let done = change(&one, &other);
    if a != b {
        other.end();
    }
    one.end();
    done
}

/// None when an overflow bucket was needed and none was left.
fn insert_locked(region: Region<'_>, lane: &Lane, first: &Bucket, word: u64) -> Option<Load> {
    let mut room: Option<&AtomicU64> = None;
    let mut last = first;
    for bucket in chain(region, first) {
        for entry in &bucket.entries {
            match entry.load(Ordering::Relaxed) {
                seen if seen == word => return Some(Load::Fits),
                0 if room.is_none() => room = Some(entry),
                _ => {}
            }
        }
        last = bucket;
    }
    match room {
        // PAIRS: the acquire load in `scan`.
        Some(entry) => entry.store(word, Ordering::Release),
        None => append(region, lane, last, word)?,
    }
    Some(if core::ptr::eq(first, last) && room.is_some() { Load::Fits } else { Load::Crowded })
}

#[cold]
fn append(region: Region<'_>, lane: &Lane, last: &Bucket, word: u64) -> Option<()> {
    let id = region.take::<Bucket>(lane).ok()?;
    let bucket = region.overflow(id);
    bucket.next.store(0, Ordering::Relaxed); // Relaxed: published by the store that links it in.
    for entry in &bucket.entries {
        entry.store(0, Ordering::Relaxed);
    }
    bucket.entries[0].store(word, Ordering::Relaxed);
    // PAIRS: the acquire load in `chain`.
    last.next.store(id.0, Ordering::Release);
    region.settle::<Bucket>(lane);
    Some(())
}

/// Takes an entry out of a chain with overflow buckets, which is locked.
#[cold]
fn remove_slow(region: Region<'_>, lane: &Lane, first: &Bucket, word: u64) {
    for bucket in chain(region, first) {
        for entry in &bucket.entries {
            if entry.load(Ordering::Relaxed) == word {
                entry.store(0, Ordering::Release);
            }
        }
    }
    compact(region, lane, first);
}

/// Moves entries of overflow buckets into room before them and gives empty overflow buckets back. The bucket is
/// locked and its count odd.
#[cold]
fn compact(region: Region<'_>, lane: &Lane, first: &Bucket) {
    let mut room = first.entries.iter();
    let mut before = first;
    for _ in 0..OVERFLOWS {
        let id = OverflowId(before.next.load(Ordering::Relaxed));
        if id.is_none() {
            return;
        }
        let bucket = region.overflow(id);
        for entry in &bucket.entries {
            let word = entry.load(Ordering::Relaxed);
            if word == 0 {
                continue;
            }
            let Some(free) = room.by_ref().find(|free| free.load(Ordering::Relaxed) == 0) else { return };
            // Copied first: no moment without it.
            free.store(word, Ordering::Release);
            entry.store(0, Ordering::Release);
        }
        let empty = bucket.entries.iter().all(|entry| entry.load(Ordering::Relaxed) == 0);
        if empty {
            // Named in the lane while it is in no chain and no cache.
            lane.taken[Bucket::SLAB].store(id.0, Ordering::Release);
            before.next.store(bucket.next.load(Ordering::Relaxed), Ordering::Release);
            region.give::<Bucket>(lane, id);
            region.settle::<Bucket>(lane);
        } else {
            before = bucket;
        }
    }
}

/// Bytes of a bucket.
const BUCKET: usize = size_of::<Bucket>();

/// How many buckets there are.
fn buckets(state: u64) -> usize {
    (1 << (BASE_LEVEL + (state as u32 & 31)).min(MAX_LEVEL)) + (state >> 32) as usize
}

/// Asks for room in the region's file for the buckets that there are. Nobody is at work.
///
/// # Errors
/// As [`Region::back`].
pub fn back(region: Region<'_>) -> lp_abi::Result<()> {
    let state = region.header().hash_state.load(Ordering::Relaxed); // Relaxed: nobody changes it.
    region.back_growth(BUCKETS_AT, 0, buckets(state) * BUCKET)
}

/// Splits one bucket if nobody else is at it. No bucket may be locked by the caller.
#[cold]
pub fn split(task: &Task<'_>) {
    let header = task.region.header();
    // Taking it over ends what a dead splitter left.
    if !header.split_lock.try_lock_or_take_over(task.lane_id, task) {
        return;
    }
    // Relaxed: only the holder of the split lock changes it.
    let state = header.hash_state.load(Ordering::Relaxed);
    let count = buckets(state);
    let has_room = task.region.back_growth(BUCKETS_AT, count * BUCKET, (count + 1) * BUCKET).is_ok();
    if BASE_LEVEL + (state as u32) < MAX_LEVEL && has_room {
        let (from, to) = split_pair(task.region, state);
        from.lock.lock(task.lane_id, task);
        to.lock.lock(task.lane_id, task);
        intent::write(task, op::SPLIT, &[state]);
        split_locked(task, state);
        intent::clear(task);
        to.lock.unlock();
        from.lock.unlock();
    }
    header.split_lock.unlock();
}

/// Ends the split that the dead `lane` had begun. One at a time for each lane.
#[cold]
pub fn replay_split(task: &Task<'_>, lane: LaneId) {
    let record = task.region.lane(lane);
    let state = record.intent.words[0].load(Ordering::Relaxed); // Relaxed: the dead write nothing.
    let (from, to) = split_pair(task.region, state);
    // Before the replay, which may take the bucket off its chain and give it back itself.
    let overflow = &record.taken[Bucket::SLAB];
    let linked =
        [from, to].iter().any(|first| is_chained(task.region, first, overflow.load(Ordering::Relaxed)));
    if linked {
        overflow.store(0, Ordering::Release);
    }
    split_locked(task, state);
    record.intent.op.store(op::NONE, Ordering::Release);
}

/// Whether overflow bucket `index` hangs on the chain of `hash`.
pub fn is_linked(region: Region<'_>, hash: u32, index: u32) -> bool {
    let state = region.header().hash_state.load(Ordering::Acquire);
    is_chained(region, region.bucket(place(state, hash)), index)
}

fn is_chained(region: Region<'_>, first: &Bucket, index: u32) -> bool {
    index != 0 && chain(region, first).any(|bucket| bucket.next.load(Ordering::Relaxed) == index)
}

/// The bucket that is due for splitting and the new one.
fn split_pair(region: Region<'_>, state: u64) -> (&Bucket, &Bucket) {
    let old = (state >> 32) as u32;
    let new = old + (1 << (BASE_LEVEL + (state as u32 & 31)).min(MAX_LEVEL));
    (region.bucket(old), region.bucket(new))
}

/// State after the split that is due in `state`.
fn next_state(state: u64) -> u64 {
    let (level, next) = (state as u32, (state >> 32) as u32 + 1);
    if next == 1 << (BASE_LEVEL + level) { level as u64 + 1 } else { state + (1 << 32) }
}

/// Does or ends the split that is due in `state`. Both buckets are locked. May run again after a death at any step.
fn split_locked(task: &Task<'_>, state: u64) {
    let (region, lane) = (task.region, task.lane);
    let (from, to) = split_pair(region, state);
    let after = next_state(state);
    let old = (state >> 32) as u32;
    let moves = |word: u64| word != 0 && place(after, (word >> 32) as u32) != old;
    let copy = || {
        chain(region, from)
            .flat_map(|bucket| bucket.entries.iter())
            .map(|entry| entry.load(Ordering::Relaxed))
            .filter(|word| moves(*word))
            .all(|word| insert_locked(region, lane, to, word).is_some())
    };
    probe::split(&region.header().hash_state, after, [&from.seq, &to.seq], copy, |copied| {
        // If no overflow buckets were left the table stays as it is.
        let stale = if copied { from } else { to };
        for entry in chain(region, stale).flat_map(|bucket| bucket.entries.iter()) {
            if moves(entry.load(Ordering::Relaxed)) {
                entry.store(0, Ordering::Release);
            }
        }
        if stale.next.load(Ordering::Relaxed) != 0 {
            compact(region, lane, stale);
        }
    });
}
