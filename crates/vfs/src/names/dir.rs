//! Directories: the array of their entries, for readdir. [`crate::names::hash`] finds entries by name.
//!
//! A directory's content is an array of entry handles in order of creation, in pages of its own map. The
//! first word of a page counts its live entries; the other [`PER_LEAF`] are handles, 0 where an entry was
//! removed. An entry's position never changes, so it is the readdir cookie. `tail` is the position of the
//! next entry; it goes back when the last entry is removed. An empty page below `tail` is freed. All of this
//! changes under the directory's lock. Readers validate what they find, see [`crate::calls::getdents`].

use lp_abi::{Errno, Result};
use lp_region::moving::DEPTH;
use lp_region::records::Inode;
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::{DirentId, InodeId, InodeRef, PageId, Region};

use crate::caller::task::Task;
use crate::content::{linking, map};
use crate::inodes::inode::{self, Locked};
use crate::names::change::words::Directory;
use crate::names::hash;

/// Words of a page.
const WORDS: usize = 1024;

/// Entries per page.
pub const PER_LEAF: u64 = WORDS as u64 - 1;

/// A page of a directory's array.
#[derive(Clone, Copy)]
pub struct Leaf<'r>(&'r [AtomicU32; WORDS]);

impl<'r> Leaf<'r> {
    /// The page `page`; `None` for the null page.
    #[inline]
    pub fn new(region: Region<'r>, page: PageId) -> Option<Self> {
        page.is_some().then(|| Leaf(region.page_words(page)))
    }

    /// The word of a position.
    #[inline]
    pub fn entry(&self, position: u64) -> &'r AtomicU32 {
        self.word((position % PER_LEAF) as usize)
    }

    /// The word of a place within the page.
    #[inline(always)]
    fn word(&self, place: usize) -> &'r AtomicU32 {
        &self.0[(1 + place) % WORDS]
    }

    #[inline(always)]
    fn count(&self) -> &'r AtomicU32 {
        &self.0[0]
    }
}

/// A position in a directory's array.
#[derive(Clone, Copy)]
pub struct Seat<'r> {
    leaf: Leaf<'r>,
    position: u64,
    /// The position within the page.
    place: usize,
}

impl<'r> Seat<'r> {
    /// A position; `None` if its page does not exist.
    #[inline(always)]
    fn at(region: Region<'r>, dir: &Inode, position: u64) -> Option<Self> {
        match map::only_page(dir) {
            Some(page) if position < PER_LEAF => {
                Some(Seat { leaf: Leaf::new(region, page)?, position, place: position as usize })
            }
            _ => Seat::at_slow(region, dir, position),
        }
    }

    /// [`Seat::at`] in a directory of several pages.
    #[inline(never)]
    fn at_slow(region: Region<'r>, dir: &Inode, position: u64) -> Option<Self> {
        let leaf = Leaf::new(region, map::get(region, dir, position / PER_LEAF))?;
        Some(Seat { leaf, position, place: (position % PER_LEAF) as usize })
    }

    /// That of an entry of directory `dir`.
    #[inline(always)]
    pub(crate) fn of(region: Region<'r>, dir: &Inode, entry: DirentId) -> Option<Self> {
        // Relaxed: immutable while linked in.
        Seat::at(region, dir, region.dirent(entry).position.load(Ordering::Relaxed))
    }

    /// Another position in the same directory; `None` if its page does not exist.
    #[inline(always)]
    pub(crate) fn beside(&self, region: Region<'r>, dir: &Inode, position: u64) -> Option<Self> {
        if self.position.max(position) < PER_LEAF {
            return Some(Seat { leaf: self.leaf, position, place: position as usize });
        }
        Seat::at_slow(region, dir, position)
    }

    /// Whether both positions are in one page.
    #[inline(always)]
    pub(crate) fn is_in_page_of(&self, other: &Seat<'_>) -> bool {
        core::ptr::eq(self.leaf.0, other.leaf.0)
    }

    /// [`Seat::fill`] without counting the entry, for a caller that removes another from the page by
    /// [`Seat::leave`]. The count is not right in between; after a death it is made anew ([`recount`]).
    #[inline(always)]
    pub(crate) fn take_over(&self, entry: DirentId) {
        // PAIRS: as in `fill`.
        self.leaf.word(self.place).store(entry.0, Ordering::Release);
    }

    /// Clears the position if `entry` is there, without counting; see [`Seat::take_over`]. The caller must
    /// hold the lock.
    #[inline(always)]
    pub(crate) fn leave(&self, entry: DirentId) {
        let word = self.leaf.word(self.place);
        if word.load(Ordering::Relaxed) == entry.0 {
            word.store(0, Ordering::Release);
        }
    }

    /// Writes an entry to the position, which is empty. The caller must hold the lock.
    #[inline(always)]
    pub(crate) fn fill(&self, entry: DirentId) {
        // PAIRS: the acquire load in getdents: the entry is filled in.
        self.leaf.word(self.place).store(entry.0, Ordering::Release);
        let count = self.leaf.count();
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Clears the position if `entry` is there; `after` is the directory's state afterwards. The caller must
    /// hold the lock.
    #[inline(always)]
    pub(crate) fn clear(&self, task: &Task<'_>, entry: DirentId, after: &Directory) {
        let word = self.leaf.word(self.place);
        let mut count = self.leaf.count().load(Ordering::Relaxed);
        if word.load(Ordering::Relaxed) == entry.0 {
            word.store(0, Ordering::Release);
            count = count.saturating_sub(1);
            self.leaf.count().store(count, Ordering::Relaxed);
        }
        let tail = task.region.inode(after.id).tail.load(Ordering::Relaxed);
        if count == 0 && tail.max(after.tail) >= PER_LEAF {
            self.drop_empty_slow(task, tail, after);
        }
    }

    /// Frees what the removal of a page's last entry left empty. `tail` is that before the removal.
    #[cold]
    fn drop_empty_slow(&self, task: &Task<'_>, tail: u64, after: &Directory) {
        let (index, last) = (self.position / PER_LEAF, tail / PER_LEAF);
        if after.entries == 0 && last != 0 {
            // A large directory has become empty: keep only the first page.
            drop_leaves(task, after.id, 1, last + 1);
        } else if index != after.tail / PER_LEAF {
            drop_leaves(task, after.id, index, index + 1);
        }
    }

    /// The position after the last entry of directory `dir` once the entry here is removed. The caller must
    /// hold the lock.
    #[inline(always)]
    pub(crate) fn tail_without(&self, dir: &Inode) -> u64 {
        let tail = dir.tail.load(Ordering::Relaxed);
        if dir.entries.load(Ordering::Relaxed) == 1 {
            return 0;
        }
        if self.position + 1 != tail {
            return tail;
        }
        if self.place != 0 && self.leaf.word(self.place - 1).load(Ordering::Relaxed) == 0 {
            return self.tail_before_gap(tail);
        }
        tail - 1
    }

    /// The tail once the last entry is removed: back over the gap before it, but only within the page.
    #[inline(never)]
    fn tail_before_gap(&self, tail: u64) -> u64 {
        let before = self.leaf.0[1..=self.place % WORDS].iter().rev();
        tail - 1 - before.take_while(|word| word.load(Ordering::Relaxed) == 0).count() as u64
    }
}

/// Locks a directory that a walk found, as the call's only lock on an inode. Hold it while names in the
/// directory change.
///
/// # Errors
/// `ESTALE` if the directory was freed meanwhile: walk again.
#[inline(always)]
pub(crate) fn enter<'r>(task: &Task<'r>, dir: InodeRef) -> Result<Locked<'r>> {
    let locked = inode::enter(task, dir.id);
    // Acquire: the generation is incremented before the slot is reused.
    let generation = task.region.inode(dir.id).generation.load(Ordering::Acquire);
    if generation == dir.generation { Ok(locked) } else { Err(Errno::ESTALE) }
}

/// The directory's current state, as the start of a [`crate::names::change::Change`]. The caller must hold
/// its lock.
pub(crate) fn now(region: Region<'_>, id: InodeId) -> Directory {
    let inode = region.inode(id);
    // Relaxed: under the lock.
    Directory {
        id,
        entries: inode.entries.load(Ordering::Relaxed),
        nlink: inode.nlink.load(Ordering::Relaxed),
        tail: inode.tail.load(Ordering::Relaxed),
    }
}

/// The directory's state after adding `entry`, which gets the next position. The caller must hold its lock.
pub(crate) fn with_entry(region: Region<'_>, id: InodeId, entry: DirentId) -> Directory {
    let mut after = now(region, id);
    region.dirent(entry).position.store(after.tail, Ordering::Relaxed); // Relaxed: published with the name.
    after.entries += 1;
    after.tail += 1;
    after
}

/// [`with_entry`] for an entry that gets a position of its own, which no entry has. It is not counted.
pub(crate) fn with_entry_at(region: Region<'_>, id: InodeId, entry: DirentId, position: u64) -> Directory {
    let mut after = now(region, id);
    region.dirent(entry).position.store(position, Ordering::Relaxed); // Relaxed: published with the name.
    after.tail = after.tail.max(position + 1);
    after
}

/// The directory's state after removing `entry`, and where the entry stands. The caller must hold its lock.
#[inline(always)]
pub(crate) fn without_entry(
    region: Region<'_>,
    id: InodeId,
    entry: DirentId,
) -> (Directory, Option<Seat<'_>>) {
    let record = region.inode(id);
    let seat = Seat::of(region, record, entry);
    let mut after = now(region, id);
    after.entries = after.entries.saturating_sub(1);
    if let Some(seat) = &seat {
        after.tail = seat.tail_without(record);
    }
    (after, seat)
}

/// A directory and, as far as they were removed, those from which it was removed, one after another.
pub(crate) fn and_above_removed(task: &Task<'_>, dir: InodeRef) -> impl Iterator<Item = InodeRef> {
    // Bounded, because a damaged region may have a circle.
    core::iter::successors(Some(dir), |dir| above_removed(task, *dir)).take(DEPTH as usize)
}

/// The directory from which this one was removed; `None` if it was not removed.
fn above_removed(task: &Task<'_>, dir: InodeRef) -> Option<InodeRef> {
    let record = task.region.inode(dir.id);
    if dir.id.is_none() || !record.is_dir() || !record.is_dead() {
        return None;
    }
    let id = InodeId(record.parent.load(Ordering::Relaxed)); // Relaxed: does not change any more.
    // PAIRS: the release in `change::set_links`.
    let generation = record.tail.load(Ordering::Acquire) as u32;
    let is_same = record.generation.load(Ordering::Acquire) == dir.generation;
    is_same.then_some(InodeRef { id, generation })
}

/// Reserves space for one entry in the array, and returns where, and in the hash table. The caller must hold
/// the lock.
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub fn reserve<'r>(task: &Task<'r>, id: InodeId) -> Result<Seat<'r>> {
    hash::reserve(task.region, task.lane)?;
    let inode = task.region.inode(id);
    let position = inode.tail.load(Ordering::Relaxed);
    match Seat::at(task.region, inode, position) {
        Some(seat) => Ok(seat),
        None => reserve_slow(task, id, position),
    }
}

/// [`reserve`] for an entry that is to get position `wanted`. Returns the one that it gets: the next one if
/// that is taken, as after a rebuild.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn reserve_at(task: &Task<'_>, id: InodeId, wanted: u64) -> Result<u64> {
    let inode = task.region.inode(id);
    hash::reserve(task.region, task.lane)?;
    let seat = Seat::at(task.region, inode, wanted);
    // Relaxed, both: under the lock.
    let is_taken = seat.is_some_and(|seat| seat.leaf.word(seat.place).load(Ordering::Relaxed) != 0);
    let position = if is_taken { inode.tail.load(Ordering::Relaxed) } else { wanted };
    if Seat::at(task.region, inode, position).is_none() {
        reserve_slow(task, id, position)?;
    }
    Ok(position)
}

#[cold]
fn reserve_slow<'r>(task: &Task<'r>, id: InodeId, position: u64) -> Result<Seat<'r>> {
    let inode = task.region.inode(id);
    linking::grow(task, id, inode, position / PER_LEAF)?;
    Seat::at(task.region, inode, position).ok_or(Errno::ENOSPC)
}

/// Writes an entry to its position, unless it is there. The caller must hold the lock and have called
/// [`reserve`].
pub fn put(task: &Task<'_>, entry: DirentId) {
    let Some(seat) = seat(task.region, entry) else { return };
    if seat.leaf.word(seat.place).load(Ordering::Relaxed) != entry.0 {
        seat.fill(entry);
    }
}

/// Clears an entry's position; `after` is the directory's state afterwards. The caller must hold the lock.
pub(crate) fn take_out(task: &Task<'_>, entry: DirentId, after: &Directory) {
    if let Some(seat) = seat(task.region, entry) {
        seat.clear(task, entry, after);
    }
}

/// Frees pages of the array. The caller must hold the lock.
#[cold]
fn drop_leaves(task: &Task<'_>, id: InodeId, first: u64, end: u64) {
    let inode = task.region.inode(id);
    // Only reclaim reads a directory's page count.
    linking::less_in_section(inode, map::held(task.region, inode, first, end));
    inode.data_seq.begin();
    linking::clear(task, id, inode, first, end);
    inode.data_seq.end();
}

/// The position after the last entry once `entry` is removed. The caller must hold the lock.
pub(crate) fn tail_without(region: Region<'_>, entry: DirentId) -> u64 {
    let dir = region.inode(parent(region, entry));
    seat(region, entry).map_or_else(|| dir.tail.load(Ordering::Relaxed), |seat| seat.tail_without(dir))
}

/// Recounts the live entries of the page that contains `position`, after a death.
pub(crate) fn recount(region: Region<'_>, id: InodeId, position: u64) {
    if let Some(Seat { leaf, .. }) = Seat::at(region, region.inode(id), position) {
        let live = leaf.0[1..].iter().filter(|word| word.load(Ordering::Relaxed) != 0).count();
        leaf.count().store(live as u32, Ordering::Relaxed);
    }
}

fn parent(region: Region<'_>, entry: DirentId) -> InodeId {
    InodeId(region.dirent(entry).parent.load(Ordering::Relaxed)) // Relaxed: immutable while linked in.
}

fn seat(region: Region<'_>, entry: DirentId) -> Option<Seat<'_>> {
    Seat::of(region, region.inode(parent(region, entry)), entry)
}
