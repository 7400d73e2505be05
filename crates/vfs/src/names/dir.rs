//! Directories: the array of their entries, for readdir. [`crate::names::hash`] finds entries by name.
//!
//! A directory's content is an array of entry handles in order of creation, in pages of its own map. The
//! first word of a page counts its live entries; the other [`PER_LEAF`] are handles, 0 where an entry was
//! removed. An entry's position never changes, so it is the readdir cookie. `tail` is the position of the
//! next entry; it goes back when the last entry is removed. An empty page below `tail` is freed. All of this
//! changes under the directory's lock. Readers validate what they find, see [`crate::calls::getdents`].

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::{DirentId, InodeId, InodeRef, PageId, Region};

use crate::caller::task::Task;
use crate::content::map;
use crate::inodes::inode::{self, Locked};
use crate::names::change::Directory;
use crate::names::hash;

/// Entries per page.
pub const PER_LEAF: u64 = 1023;

/// A page of a directory's array.
#[derive(Clone, Copy)]
pub struct Leaf<'r>(&'r [AtomicU32; 1024]);

impl<'r> Leaf<'r> {
    /// The page `page`; `None` for the null page.
    #[inline]
    pub fn new(region: Region<'r>, page: PageId) -> Option<Self> {
        page.is_some().then(|| Leaf(region.page_words(page)))
    }

    /// The word of a position.
    #[inline]
    pub fn entry(&self, position: u64) -> &'r AtomicU32 {
        &self.0[(1 + position % PER_LEAF) as usize]
    }

    fn count(&self) -> &'r AtomicU32 {
        &self.0[0]
    }
}

/// Locks a directory that a walk found, as the call's only lock on an inode. Hold it while names in the
/// directory change.
///
/// # Errors
/// `ESTALE` if the directory was freed meanwhile: walk again.
#[inline]
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

/// Whether an inode is a directory.
#[inline]
pub fn is(inode: &Inode) -> bool {
    inode.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR
}

/// Whether it was removed: nothing may be created in it.
pub(crate) fn is_dead(inode: &Inode) -> bool {
    inode.flags.load(Ordering::Relaxed) & inode_flags::DEAD != 0
}

/// Reserves space for one entry in the array and in the hash table. The caller must hold the lock.
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub fn reserve(task: &Task<'_>, id: InodeId) -> Result<()> {
    hash::reserve(task.region, task.lane)?;
    let inode = task.region.inode(id);
    let leaf = inode.tail.load(Ordering::Relaxed) / PER_LEAF;
    if map::get(task.region, inode, leaf).is_none() {
        map::grow(task, id, inode, leaf)?;
    }
    Ok(())
}

/// Writes an entry to its position. The caller must hold the lock and have called [`reserve`].
#[inline(always)]
pub fn put(task: &Task<'_>, entry: DirentId) {
    let record = task.region.dirent(entry);
    let position = record.position.load(Ordering::Relaxed); // Relaxed: the entry is the caller's.
    let Some(leaf) = leaf(task.region, parent(task.region, entry), position) else { return };
    let word = leaf.entry(position);
    if word.load(Ordering::Relaxed) != entry.0 {
        // PAIRS: the acquire load in getdents: the entry is filled in.
        word.store(entry.0, Ordering::Release);
        leaf.count().store(leaf.count().load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Clears an entry's position; `after` is the directory's state afterwards. The caller must hold the lock.
#[inline(always)]
pub(crate) fn take_out(task: &Task<'_>, entry: DirentId, after: &Directory) {
    let position = task.region.dirent(entry).position.load(Ordering::Relaxed);
    let id = parent(task.region, entry);
    let Some(leaf) = leaf(task.region, id, position) else { return };
    let word = leaf.entry(position);
    let mut count = leaf.count().load(Ordering::Relaxed);
    if word.load(Ordering::Relaxed) == entry.0 {
        word.store(0, Ordering::Release);
        count = count.saturating_sub(1);
        leaf.count().store(count, Ordering::Relaxed);
    }
    let index = position / PER_LEAF;
    let last = task.region.inode(id).tail.load(Ordering::Relaxed) / PER_LEAF;
    if after.entries == 0 && last != 0 {
        // A large directory has become empty: keep only the first page.
        drop_leaves(task, id, 1, last + 1);
    } else if count == 0 && index != after.tail / PER_LEAF {
        drop_leaves(task, id, index, index + 1);
    }
}

/// Frees pages of the array. The caller must hold the lock.
#[cold]
fn drop_leaves(task: &Task<'_>, id: InodeId, first: u64, end: u64) {
    let inode = task.region.inode(id);
    // Only reclaim reads a directory's page count.
    map::less_in_section(inode, map::held(task.region, inode, first, end));
    inode.data_seq.begin();
    map::clear(task, id, inode, first, end);
    inode.data_seq.end();
}

/// The position after the last entry once `entry` is removed. The caller must hold the lock.
#[inline(always)]
pub(crate) fn tail_without(region: Region<'_>, entry: DirentId) -> u64 {
    let id = parent(region, entry);
    let tail = region.inode(id).tail.load(Ordering::Relaxed);
    if region.inode(id).entries.load(Ordering::Relaxed) == 1 {
        return 0;
    }
    let position = region.dirent(entry).position.load(Ordering::Relaxed);
    if position + 1 != tail {
        return tail;
    }
    let Some(leaf) = leaf(region, id, position) else { return tail };
    // Back over the gap before it, but only within the page.
    let place = (position % PER_LEAF) as usize;
    let before = leaf.0[1..=place].iter().rev();
    tail - 1 - before.take_while(|word| word.load(Ordering::Relaxed) == 0).count() as u64
}

/// Recounts the live entries of the page that contains `position`, after a death.
pub(crate) fn recount(region: Region<'_>, id: InodeId, position: u64) {
    if let Some(leaf) = leaf(region, id, position) {
        let live = leaf.0[1..].iter().filter(|word| word.load(Ordering::Relaxed) != 0).count();
        leaf.count().store(live as u32, Ordering::Relaxed);
    }
}

fn parent(region: Region<'_>, entry: DirentId) -> InodeId {
    InodeId(region.dirent(entry).parent.load(Ordering::Relaxed)) // Relaxed: immutable while linked in.
}

#[inline(always)]
fn leaf<'r>(region: Region<'r>, id: InodeId, position: u64) -> Option<Leaf<'r>> {
    Leaf::new(region, map::get(region, region.inode(id), position / PER_LEAF))
}
