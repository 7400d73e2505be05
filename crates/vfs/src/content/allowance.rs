//! Limits of a file system that mount(2) made (`size=`, `nr_inodes=`): pages and inodes that may be taken
//! before somebody counts again.
//!
//! What is in use is found, not counted: freeing gives nothing back, and what a killed process took is lost
//! to the allowance until the next count. A word has the number that was ever charged and the ceiling that it
//! may reach. Whoever finds too little left remembers the number, counts what has an owner, and sets the
//! ceiling to the number plus the rest. A page has its owner before it is charged, so what the count misses
//! was charged after the number was read, and counts against the ceiling. What is in use may be counted and
//! charged, never neither: with nobody else at work the result is exact, and the limit is not exceeded
//! beside others. A further name of a file is the exception, because it is charged before it exists: one that
//! comes beside a count may go beyond `nr_inodes`.
//!
//! A full file system would be counted again at each write that fails. Whoever counts pages therefore leaves a
//! hash of the limit, the allowance, and the words that say which pages of the region are in use. Each change
//! of such a word makes it another number: while the hash stays the same, nothing was taken, freed or charged.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_region::layout::{CHUNK_PAGES, COMMAND_ROOTS};
use lp_region::mount::Superblock;
use lp_region::records::{Inode, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::AtomicU64;
use lp_region::sync::Ordering::{AcqRel, Acquire, Relaxed};
use lp_region::{InodeId, PageId, Region};

use crate::caller::task::Task;
use crate::content::owner;

/// Words of 64 pages in a chunk.
const WORDS: usize = CHUNK_PAGES / 64;

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Pages of files and of the texts of links.
    Pages,
    /// Inodes, and each further name of one.
    Inodes,
}

impl What {
    /// The limit, 0 for none, and the allowance.
    fn of(self, record: &Superblock) -> (u64, &AtomicU64) {
        // Relaxed: a limit of a moment.
        match self {
            What::Pages => (record.pages.load(Relaxed), &record.page_allowance),
            What::Inodes => (record.inodes.load(Relaxed), &record.inode_allowance),
        }
    }
}

/// Charges a file system for `want` that the caller has taken, as far as its limit allows. Returns for how
/// many.
#[inline]
pub(crate) fn charge(task: &Task, root: u32, what: What, want: u64) -> u64 {
    if (root as usize) < COMMAND_ROOTS { want } else { charge_slow(task, root, what, want, want) }
}

/// Whether an inode's file system may have room for another page of content. Asked before one is taken: taking
/// and giving back would change what is in use.
#[inline]
pub(crate) fn may_take(task: &Task, id: InodeId) -> bool {
    let inode = task.region.inode(id);
    // Relaxed: immutable.
    let root = inode.root.load(Relaxed);
    (root as usize) < COMMAND_ROOTS || !is_limited(inode) || has_room(task, root, What::Pages, 1)
}

/// Charges for pages of content that the caller has taken.
#[inline]
pub(crate) fn charge_pages(task: &Task, id: InodeId, want: u32) -> u32 {
    let inode = task.region.inode(id);
    // Relaxed: immutable.
    let root = inode.root.load(Relaxed);
    if (root as usize) < COMMAND_ROOTS || !is_limited(inode) {
        return want;
    }
    charge_slow(task, root, What::Pages, want.into(), want.into()) as u32
}

/// Whether a file system's limit leaves room for as much as this, which nobody has taken yet.
pub(crate) fn has_room(task: &Task, root: u32, what: What, want: u64) -> bool {
    if (root as usize) < COMMAND_ROOTS {
        return true;
    }
    let has = || {
        let (limit, word) = what.of(task.region.superblock(root));
        limit == 0 || left(word.load(Relaxed)) >= want
    };
    if has() {
        return true;
    }
    charge_slow(task, root, what, 0, want);
    has()
}

/// Charges for something that is about to be taken: whether the limit allows it.
pub(crate) fn reserve(task: &Task, root: u32, what: What) -> bool {
    if !has_room(task, root, what, 1) {
        return false;
    }
    if root as usize >= COMMAND_ROOTS {
        let (limit, word) = what.of(task.region.superblock(root));
        return limit == 0 || grant(word, 1) == 1;
    }
    true
}

/// Whether an inode's pages count: not those of directories and blobs, as there.
fn is_limited(inode: &Inode) -> bool {
    let is_dir = inode.mode.load(Relaxed) & S_IFMT == S_IFDIR;
    !is_dir && inode.flags.load(Relaxed) & inode_flags::BLOB == 0
}

/// Charges for `taken`, which have an owner, and counts if less than `needed` is left.
#[cold]
fn charge_slow(task: &Task, root: u32, what: What, taken: u64, needed: u64) -> u64 {
    let record = task.region.superblock(root);
    loop {
        let (limit, word) = what.of(record);
        if limit == 0 {
            return taken;
        }
        // PAIRS: the exchange in `grant`: who sees a charge sees the owners of what was charged.
        let seen = word.load(Acquire);
        if left(seen) < needed {
            match what {
                What::Pages => count_pages(task.region, root, (limit, seen), taken),
                What::Inodes => {
                    let used = inodes(task.region, root).saturating_sub(taken);
                    raise(word, limit, seen, used);
                }
            }
        }
        // A remount may have changed the limit that was counted for.
        if what.of(record).0 == limit {
            return grant(word, taken);
        }
    }
}

/// Counts the pages of a file system with a limit, whose allowance is `seen`, unless nothing has changed.
fn count_pages(region: Region<'_>, root: u32, (limit, seen): (u64, u64), taken: u64) {
    let record = region.superblock(root);
    // Before the count: what changes meanwhile counts as changed since.
    let in_use = hash_of_used(region);
    let key = |allowance: u64| mix(mix(in_use, limit), allowance);
    // A caller that has taken pages leaves them out, so its count is nobody else's.
    let is_for_all = taken == 0;
    // Relaxed, here and below: a key of another moment is no key of this one.
    if is_for_all && record.counted_pages.load(Relaxed) == key(seen) {
        return;
    }
    let used = pages(region, root).saturating_sub(taken);
    let now = raise(&record.page_allowance, limit, seen, used);
    // What was charged meanwhile may also have been counted: nobody should take that for exact.
    if is_for_all && charged(now) == charged(seen) {
        record.counted_pages.store(key(now), Relaxed);
    }
}

/// Sets the ceiling of an allowance that was `seen` before `used` were counted. Returns the allowance.
fn raise(word: &AtomicU64, limit: u64, seen: u64, used: u64) -> u64 {
    let rest = limit.saturating_sub(used).min(MOST);
    let ceiling = charged(seen).wrapping_add(rest as u32);
    let raised = |now: u64| pack(charged(now), ceiling);
    word.fetch_update(AcqRel, Acquire, |now| Some(raised(now))).map_or(seen, raised)
}

/// Charges as much of `want` as the ceiling allows.
fn grant(word: &AtomicU64, want: u64) -> u64 {
    let mut granted = 0;
    let _ = word.fetch_update(AcqRel, Acquire, |now| {
        granted = want.min(left(now));
        Some(pack(charged(now).wrapping_add(granted as u32), ceiling(now)))
    });
    granted
}

/// Has the next one count, because limits have changed.
pub(crate) fn recount(record: &Superblock) {
    for word in [&record.page_allowance, &record.inode_allowance] {
        let _ = word.fetch_update(AcqRel, Acquire, |now| Some(pack(charged(now), charged(now))));
    }
}

/// The largest rest that a count leaves.
const MOST: u64 = 1 << 30;

fn pack(charged: u32, ceiling: u32) -> u64 {
    u64::from(charged) | u64::from(ceiling) << 32
}

fn charged(word: u64) -> u32 {
    word as u32
}

fn ceiling(word: u64) -> u32 {
    (word >> 32) as u32
}

/// What may still be charged.
fn left(word: u64) -> u64 {
    (ceiling(word).wrapping_sub(charged(word)) as i32).max(0) as u64
}

/// A hash of the words that say which pages are in use.
fn hash_of_used(region: Region<'_>) -> u64 {
    let words = (0..chunks(region)).filter_map(|index| region.chunk(index)).flat_map(|chunk| &chunk.used);
    words.fold(0, |hash, word| mix(hash, word.load().word()))
}

/// Continues a hash with one more word.
fn mix(hash: u64, word: u64) -> u64 {
    // An odd number without a pattern: the fraction of the golden ratio.
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Chunks that may have pages in use.
fn chunks(region: Region<'_>) -> usize {
    (region.header().chunk_limit.load(Relaxed) as usize).min(region.chunk_count())
}

/// Pages that belong to files of a file system.
fn pages(region: Region<'_>, root: u32) -> u64 {
    let mut count = 0;
    for (index, word) in (0..chunks(region)).flat_map(|index| (0..WORDS).map(move |word| (index, word))) {
        let mut used = region.chunk(index).map_or(0, |chunk| chunk.used(word));
        while used != 0 {
            let page = index * CHUNK_PAGES + word * 64 + used.trailing_zeros() as usize;
            used &= used - 1;
            let Some(home) = owner::content_of(region, PageId(page as u32)) else { continue };
            let inode = region.inode(home.inode);
            count += u64::from(inode.root.load(Relaxed) == root && is_limited(inode));
        }
    }
    count
}

/// Inodes of a file system, each name of a file counted.
fn inodes(region: Region<'_>, root: u32) -> u64 {
    let last = region.header().slabs[Inode::SLAB].last();
    let of = |id: u32| {
        let inode = region.inode(InodeId(id));
        let is_blob = || inode.flags.load(Relaxed) & inode_flags::BLOB != 0;
        // Others' inodes are looked at on one line.
        if inode.root.load(Relaxed) != root || is_blob() {
            return 0;
        }
        match inode.nlink.load(Relaxed) {
            // What is open without a name, as far as it has content.
            0 => u64::from(inode.map.load(Relaxed) != 0),
            _ if inode.mode.load(Relaxed) & S_IFMT == S_IFDIR => 1,
            nlink => u64::from(nlink),
        }
    };
    (1..=last).map(of).sum()
}

/// What a file system uses, as programs see it: pages and inodes.
pub(crate) fn used(region: Region<'_>, root: u32) -> (u64, u64) {
    let last = region.header().slabs[Inode::SLAB].last();
    let of = |id: u32| {
        let inode = region.inode(InodeId(id));
        // What was freed has no map.
        let counts = inode.root.load(Relaxed) == root && inode.map.load(Relaxed) != 0 && is_limited(inode);
        if counts { u64::from(inode.pages.load(Relaxed)) } else { 0 }
    };
    ((1..=last).map(of).sum(), inodes(region, root))
}
