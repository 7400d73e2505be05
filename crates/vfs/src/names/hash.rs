//! The hash table that finds entries by directory and name: linear hashing over [`Bucket`] lines.
//!
//! Like Linux's `dentry_hashtable`, but it is the directory itself, not a cache of it. `header.hash_state`
//! holds the number of buckets: `1 << (BASE_LEVEL + level)`, plus `next`. A hash belongs to the bucket of its
//! low bits; buckets below `next` are split already and use one bit more. An insert that meets a full bucket
//! splits bucket `next` into itself and a new one at the end. Buckets are never merged.
//!
//! The table leads to entries; `Dirent::shape` in an entry's record decides whether its name exists. An entry
//! is inserted before it is born and removed after it has died (`crate::names::change`), each by one exchange
//! of one word and without a lock: [`lp_region::bucket`]. A lookup takes no lock and writes nothing. It
//! accepts an entry whose `seq` did not change while it was read. Linearisation point of a hit: any moment
//! between the two loads of `seq`. Of a miss: the load of the shape of the entry that is not alive, or the
//! second load of the table's state. Progress: only a rename of the very name delays a hit. After `SPINS`
//! tries the hit is accepted as seen, which is correct except for a rename that is half done at that moment.
//!
//! `crate::names::change::replay` and `replay_split` finish what a dead lane left.

use core::num::{NonZeroU32, NonZeroU64};

use lp_abi::Result;
use lp_abi::linux::{S_IFDIR, S_IFLNK};
use lp_region::bucket::{Growing, HashTable, Look, Pair, Vacancy};
use lp_region::lane::Lane;
use lp_region::layout::{BUCKET_SLAB, BUCKETS, OVERFLOWS};
use lp_region::order::{self, Rank};
use lp_region::records::{Bucket, Dirent};
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering, not_before};
use lp_region::{DirentId, InodeId, InodeRef, LaneId, OverflowId, Region, bucket, split as carry};

use crate::caller::task::Task;
use crate::lane::intent::{self, op};
use crate::lane::taken;
use crate::names::dirent;
use crate::names::name::{Key, Name};

/// Buckets of an empty table, as a power of two: four pages. Few names seldom share a bucket, so that changes
/// of one seldom take the line from those that look up another.
pub const BASE_LEVEL: u32 = 8;

/// Bits of a hash that the largest table uses.
pub const MAX_LEVEL: u32 = BUCKETS.trailing_zeros();

// Each split of a bucket raises its tags, which have four bits.
const _: () = assert!(MAX_LEVEL - BASE_LEVEL < 16);

/// Tries before a lookup accepts its result as seen.
const SPINS: u32 = 2000;

/// The result of a lookup. Two words, so that it stays in registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    target: u64,
    /// The entry in the low half, the type in the high one. No entry is 0.
    entry: NonZeroU64,
}

impl Hit {
    /// What entry `id` names at this moment; `kind` is its type.
    #[inline(always)]
    fn read(record: &Dirent, id: NonZeroU32, kind: u32) -> Self {
        let entry = NonZeroU64::from(id) | u64::from(kind) << 32;
        Hit { target: dirent::target(record).to_word(), entry }
    }

    /// The entry.
    #[inline(always)]
    pub fn dirent(self) -> DirentId {
        DirentId(self.entry.get() as u32)
    }

    /// Its target when it was read.
    #[inline(always)]
    pub fn target(self) -> InodeRef {
        InodeRef::from_word(self.target)
    }

    /// The target's type, as in `d_type`, and [`dirent::COVERED`].
    #[inline(always)]
    fn shape(self) -> u32 {
        (self.entry.get() >> 32) as u32
    }

    /// The target's type, as in `d_type`.
    #[inline(always)]
    pub(crate) fn kind(self) -> u32 {
        self.shape() & !dirent::COVERED
    }

    /// Whether it is a symbolic link. Nothing is mounted on one.
    #[inline(always)]
    pub(crate) fn is_link(self) -> bool {
        self.shape() == S_IFLNK >> 12
    }

    /// Whether it is a directory.
    #[inline(always)]
    pub fn is_directory(self) -> bool {
        self.shape() & !dirent::COVERED == S_IFDIR >> 12
    }

    /// Whether something may be mounted on it.
    #[inline(always)]
    pub(crate) fn is_covered(self) -> bool {
        self.shape() & dirent::COVERED != 0
    }

    /// Whether it is neither a link, nor a socket, nor covered: one comparison.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.shape() < S_IFLNK >> 12
    }
}

/// Whether a table should grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// The entry fits its bucket's first line.
    Fits,
    /// It does not: call [`split`] once no locks are held.
    Crowded,
}

/// The table, for lookups.
#[derive(Clone, Copy)]
struct Buckets<'r>(Region<'r>);

impl HashTable<6> for Buckets<'_> {
    const BASE: u32 = BASE_LEVEL;
    const MOST: usize = OVERFLOWS;

    #[inline(always)]
    fn state(&self) -> &AtomicU64 {
        &self.0.header().hash_state
    }

    #[inline(always)]
    fn first(&self, index: u32) -> &Bucket {
        self.0.bucket(index)
    }

    fn overflow(&self, id: u32) -> &Bucket {
        self.0.overflow(OverflowId(id))
    }
}

/// The table, for changes by a lane.
struct Changing<'r> {
    region: Region<'r>,
    lane: &'r Lane,
}

impl HashTable<6> for Changing<'_> {
    const BASE: u32 = BASE_LEVEL;
    const MOST: usize = OVERFLOWS;

    #[inline(always)]
    fn state(&self) -> &AtomicU64 {
        &self.region.header().hash_state
    }

    #[inline(always)]
    fn first(&self, index: u32) -> &Bucket {
        self.region.bucket(index)
    }

    fn overflow(&self, id: u32) -> &Bucket {
        self.region.overflow(OverflowId(id))
    }
}

impl Growing<6> for Changing<'_> {
    fn take(&self) -> Option<u32> {
        let id = self.region.take::<Bucket>(self.lane).ok()?;
        self.region.overflow(id).clear();
        Some(id.0)
    }

    fn linked(&self) {
        self.region.settle::<Bucket>(self.lane);
    }

    fn give(&self, id: u32) {
        self.region.overflow(OverflowId(id)).clear();
        self.region.give::<Bucket>(self.lane, OverflowId(id));
        self.region.settle::<Bucket>(self.lane);
    }
}

/// Finds `name` in directory `dir`.
#[inline(always)]
pub fn lookup(region: Region<'_>, dir: InodeId, name: &Name<'_>) -> Option<Hit> {
    find(region, dir, name, name.hash(dir))
}

/// [`lookup`] of a name whose hash is known.
#[inline(always)]
pub(crate) fn lookup_at(region: Region<'_>, place: &Key<'_, '_>) -> Option<Hit> {
    find(region, place.dir, place.name, place.hash)
}

/// The bucket to which a hash led, for several uses of it.
#[derive(Clone, Copy)]
pub(crate) struct Way<'r> {
    region: Region<'r>,
    /// The table's state then.
    seen: u64,
    first: &'r Bucket,
}

impl<'r> Way<'r> {
    /// Where a hash leads.
    #[inline(always)]
    pub(crate) fn of(region: Region<'r>, hash: u32) -> Self {
        let region = region.records();
        // PAIRS: as in `bucket::look`.
        let seen = region.header().hash_state.load(Ordering::Acquire);
        Way { region, seen, first: region.bucket(place(seen, hash)) }
    }

    /// The entry of a name whose hash led here.
    #[inline(always)]
    pub(crate) fn find(&self, place: &Key<'_, '_>) -> Option<Hit> {
        let Key { dir, name, hash } = *place;
        match scan(self.region, self.first, dir, name, hash) {
            (None, true) if self.is_all() => None,
            (Some(hit), true) => Some(hit),
            _ => find_slow(self.region, dir, name, hash),
        }
    }

    /// Whether it takes one look to see that no name with the hash that led here exists. While the caller
    /// holds a directory's lock, none is added to that directory. False if it takes more: look the name up.
    #[inline(always)]
    pub(crate) fn lacks(&self, hash: u32) -> bool {
        self.first(hash).is_none() && self.is_all()
    }

    /// The word in this bucket of the first name with the hash that led here.
    #[inline(always)]
    pub(crate) fn first(&self, hash: u32) -> Option<&'r AtomicU64> {
        self.first.entries.iter().find(|word| high(word) == hash)
    }

    #[inline(always)]
    fn is_all(&self) -> bool {
        bucket::is_all(&Buckets(self.region), (self.seen, self.first))
    }

    /// The entry of the name whose word [`Way::first`] found. The caller must hold the directory's lock, so
    /// no lane changes the entry. `None` also if the name's word is elsewhere: look it up.
    #[inline(always)]
    pub(crate) fn hit_locked(&self, place: &Key<'_, '_>, word: &AtomicU64) -> Option<Hit> {
        // PAIRS: the exchange that inserted it: the entry is filled in.
        let id = NonZeroU32::new(bucket::id_of(word.load(Ordering::Acquire) as u32))?;
        let record = self.region.whole_dirent(DirentId(id.get()));
        let kind = dirent::of_locked(self.region, record, place.dir, place.name)?;
        Some(Hit::read(record, id, kind))
    }

    /// [`insert`] of an entry whose hash led here.
    #[inline(always)]
    pub(crate) fn insert(&self, lane: &Lane, hash: u32, id: DirentId) -> Load {
        let table = Changing { region: self.region, lane };
        match bucket::insert_in(&table, (self.seen, self.first), bucket::word(hash, id.0)) {
            Some(Vacancy::First) => Load::Fits,
            _ => Load::Crowded, // As in `insert`.
        }
    }
}

/// [`remove`] of an entry whose word was found here.
#[inline(always)]
pub(crate) fn remove_at(region: Region<'_>, entry: &AtomicU64, hash: u32, id: DirentId) {
    bucket::remove_at(&Buckets(region), entry, bucket::word(hash, id.0));
}

/// Prefetches the bucket of a hash for a lookup that follows soon.
#[inline(always)]
pub(crate) fn prefetch(region: Region<'_>, hash: u32) {
    // Relaxed: a guess.
    let state = region.header().hash_state.load(Ordering::Relaxed);
    lp_region::sync::prefetch(region.bucket(place(state, hash)));
}

#[inline(never)]
fn find(region: Region<'_>, dir: InodeId, name: &Name<'_>, hash: u32) -> Option<Hit> {
    let region = region.records();
    let (hit, certain) = bucket::look(&Buckets(region), hash, |bucket| scan(region, bucket, dir, name, hash));
    if certain { hit } else { find_slow(region, dir, name, hash) }
}

#[cold]
fn find_slow(region: Region<'_>, dir: InodeId, name: &Name<'_>, hash: u32) -> Option<Hit> {
    let mut tries = 0;
    loop {
        let (hit, certain) =
            bucket::look_slow(&Buckets(region), hash, |bucket| scan(region, bucket, dir, name, hash));
        tries += 1;
        // Eventually: a rename was stopped half-way; the module's comment says what holds then.
        if certain || hit.is_some() && tries > SPINS {
            return hit;
        }
        lp_region::sync::spin();
    }
}

/// Looks a name up in one bucket. A hit that is not certain is of an entry that a rename is changing.
#[inline(always)]
fn scan(region: Region<'_>, bucket: &Bucket, dir: InodeId, name: &Name<'_>, hash: u32) -> Look<Hit> {
    for entry in &bucket.entries {
        if high(entry) != hash {
            continue;
        }
        // PAIRS: the exchange that inserted it: the entry is filled in.
        let id = bucket::id_of(entry.load(Ordering::Acquire) as u32);
        let Some(id) = NonZeroU32::new(id) else { continue };
        let record = region.whole_dirent(DirentId(id.get()));
        let before = record.seq.read();
        // Few lookups compare more than one name: it is not kept in registers.
        if let Some(kind) = dirent::of(region, record, dir, not_before(name)) {
            let hit = Hit::read(record, id, kind);
            if record.seq.retry(before) {
                // Nothing from a slot that changes hands is accepted.
                return (record.seq.stands_at(before).then_some(hit), false);
            }
            return (Some(hit), true);
        }
    }
    (None, true)
}

/// The hash in an entry's word.
///
/// Rust's memory model has no atomic access to half a word, but the processor does, and there the load below
/// returns half of what a load of the whole word might. Both forms that the model allows cost instructions
/// on each lookup: loading the word costs six, and a load by assembly, which cannot be folded into the
/// comparison, one for each entry compared. Miri runs no assembly, so it would load the word in any case.
#[inline(always)]
fn high(entry: &AtomicU64) -> u32 {
    if cfg!(miri) {
        return bucket::hash_of(entry.load(Ordering::Relaxed));
    }
    // SAFETY: the high half of a little-endian word, which lives as long as the word. A stale half only
    // misleads the comparison that follows.
    unsafe { &*(&raw const *entry).cast::<AtomicU32>().add(1) }.load(Ordering::Relaxed)
}

/// Index of the bucket for `hash` in this state.
#[inline(always)]
pub fn place(state: u64, hash: u32) -> u32 {
    bucket::place(BASE_LEVEL, state, hash)
}

/// Ensures that this lane's next insert finds an overflow bucket if it needs one.
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub(crate) fn reserve(region: Region<'_>, lane: &Lane) -> Result<()> {
    // Relaxed: only this lane writes its cache.
    match lane.caches[Bucket::SLAB].count.load(Ordering::Relaxed) {
        0 => reserve_slow(region, lane),
        _ => Ok(()),
    }
}

#[cold]
fn reserve_slow(region: Region<'_>, lane: &Lane) -> Result<()> {
    let id = region.take::<Bucket>(lane)?;
    region.give::<Bucket>(lane, id);
    region.settle::<Bucket>(lane);
    Ok(())
}

/// Inserts an entry that is not in the table. The caller must hold its directory's lock and have called
/// `reserve`.
#[inline(always)]
pub fn insert(region: Region<'_>, lane: &Lane, hash: u32, id: DirentId) -> Load {
    match bucket::insert(&Changing { region, lane }, hash, id.0) {
        Some(Vacancy::First) => Load::Fits,
        // The caller reserved an overflow bucket. Only a damaged region has none, and loses the name.
        _ => Load::Crowded,
    }
}

/// [`insert`] for a dead lane under burial, which may have done it already.
#[cold]
pub(crate) fn insert_again(region: Region<'_>, lane: &Lane, hash: u32, id: DirentId) {
    if !bucket::has(&Buckets(region), hash, id.0) {
        insert(region, lane, hash, id);
    }
}

/// Removes a dead entry from the table if it is there. The caller must hold its directory's lock.
#[inline(always)]
pub(crate) fn remove(region: Region<'_>, hash: u32, id: DirentId) {
    bucket::remove(&Buckets(region), hash, id.0);
}

/// The number of buckets.
fn buckets(state: u64) -> usize {
    (1 << (BASE_LEVEL + (state as u32 & 31)).min(MAX_LEVEL)) + (state >> 32) as usize
}

/// Allocates space in the region's file for the existing buckets. Nobody may use the region meanwhile.
///
/// # Errors
/// Those of [`Region::back`].
pub(crate) fn back(region: Region<'_>) -> lp_abi::Result<()> {
    let state = region.header().hash_state.load(Ordering::Relaxed); // Relaxed: nobody changes it.
    region.back_used(BUCKET_SLAB, buckets(state))
}

/// Splits one bucket, or finishes a split under way, if nobody else does.
#[cold]
pub fn split(task: &Task<'_>) {
    let header = task.region.header();
    // Taking the lock over finishes what a dead splitter left.
    if !header.split_lock.try_lock_or_take_over(task.lane_id, task) {
        return;
    }
    let of = order::of(&task.lane.holding);
    order::took(of, order::what(Rank::Split, &header.split_lock));
    let _held = order::keep(of, &header.split_lock);
    let table = Changing { region: task.region, lane: task.lane };
    let _intent = intent::write(task, op::SPLIT, &[]);
    if carry::go_on(&table) {
        // Relaxed: only the holder of the split lock changes it.
        let state = header.hash_state.load(Ordering::Relaxed);
        let count = buckets(state);
        let has_room = task.region.back_growth(BUCKET_SLAB, count, count + 1).is_ok();
        if BASE_LEVEL + (state as u32) < MAX_LEVEL && has_room {
            carry::split(&table);
        }
    }
}

/// Finishes the split that the dead `lane` had begun. Must not run concurrently for the same lane.
#[cold]
pub(crate) fn replay_split(task: &Task<'_>, lane: LaneId) {
    let (region, record) = (task.region, task.region.lane(lane));
    // Only the dead lane, which holds the split lock, changes it.
    let state = region.header().hash_state.load(Ordering::Acquire);
    put_by(task, record, [Pair::of(BASE_LEVEL, state).to].into_iter());
    carry::go_on(&Changing { region, lane: record });
    record.intent.op.store(op::NONE, Ordering::Release);
}

/// Settles the overflow bucket in a dead lane's hand, which it may have linked in for one of these hashes:
/// the bucket stays where it is or returns to the lane's cache. Runs before the lane's change is repeated,
/// which may take another.
#[cold]
pub(crate) fn settle_overflow(task: &Task<'_>, lane: &Lane, hashes: [u32; 2]) {
    let state = task.region.header().hash_state.load(Ordering::Acquire);
    // The chain that was the hash's when there were fewer buckets keeps what was linked in then.
    let levels = (0..=state & 31).chain([state]);
    let firsts = levels.flat_map(|level| hashes.map(|hash| place(level, hash)));
    put_by(task, lane, firsts);
}

fn put_by(task: &Task<'_>, lane: &Lane, mut firsts: impl Iterator<Item = u32>) {
    let region = task.region;
    let taken = &lane.taken[Bucket::SLAB];
    let index = taken.load(Ordering::Relaxed); // Relaxed: the dead write nothing.
    let is_linked = |first: u32| {
        bucket::chain(&Buckets(region), region.bucket(first)).any(|bucket| bucket.next_index() == index)
    };
    if index != 0 && firsts.any(is_linked) {
        taken.store(0, Ordering::Release);
    }
    taken::give_back::<Bucket>(task, lane);
}
