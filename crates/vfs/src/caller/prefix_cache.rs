//! Cache of recently used directories by path: it maps a path up to its last slash to the directory, so that
//! the next path into the same directory takes one lookup.
//!
//! An entry says that a text, from a base, leads to a directory through directories that everyone may search,
//! and through no symbolic link and no dots. That is a fact about the tree, independent of the caller. It
//! holds while `Header::tree` does not change: [`crate::names::tree`] makes the count odd before a directory
//! moves or becomes less searchable, and sets a new even one afterwards. Removal is no such change: before
//! another directory can get its name, a removed directory is marked dead, or freed with an incremented
//! generation, and both are checked.
//!
//! A walk reads the count before its first step; its result is entered only if the count is even and
//! unchanged. Linearisation point of a hit: the load of the count. ABA: 2^31 changes of the tree between two
//! uses of an entry. Progress: wait-free; while a change is under way, or a death cut one short and it is not
//! buried, walks take all their steps. The entries belong to the task, so nothing is written that others
//! read. Source: the prefix check cache of Tsai et al., "How to get more value from your file system
//! directory cache" (SOSP 2015).

use core::cell::{Cell, UnsafeCell};

use lp_region::mount::{State, mount_state};
use lp_region::sync::Ordering;
use lp_region::{InodeRef, MountId, Spot};

use crate::caller::task::Task;
use crate::caller::walked;

/// Longest text of an entry.
const TEXT: usize = 104;

/// Number of entries; a text has one possible place.
const PLACES: usize = 8;

/// Bit of [`CachedPrefix::length`]: the mount stands in another, so it may go, and whoever walks into it
/// keeps it. [`find`] has no time for that and skips it.
const INNER: u16 = 1 << 15;

/// A cached prefix: where its text leads.
struct CachedPrefix {
    /// Where the text starts: a directory, as [`Spot::to_word`], or 0 for `/`.
    base: Cell<u64>,
    /// The directory, as [`InodeRef::to_word`](lp_region::InodeRef::to_word).
    dir: Cell<u64>,
    /// `Header::tree` when that was true.
    tree: Cell<u32>,
    /// Bytes of the text, and [`INNER`]; 0 if there is no entry.
    length: Cell<u16>,
    /// The mount through which the directory is reached.
    mount: Cell<u16>,
    /// Its state ([`State`]), if it stands in another.
    state: Cell<u32>,
    text: UnsafeCell<[u8; TEXT]>,
}

/// The cache of one task.
pub struct PrefixCache([CachedPrefix; PLACES]);

impl PrefixCache {
    /// An empty cache.
    pub const fn new() -> Self {
        PrefixCache(
            [const {
                CachedPrefix {
                    base: Cell::new(0),
                    dir: Cell::new(0),
                    tree: Cell::new(0),
                    length: Cell::new(0),
                    mount: Cell::new(0),
                    state: Cell::new(0),
                    text: UnsafeCell::new([0; TEXT]),
                }
            }; PLACES],
        )
    }
}

impl Default for PrefixCache {
    fn default() -> Self {
        PrefixCache::new()
    }
}

/// A text from a base, up to and including a slash.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    /// Where it starts: a directory, as [`Spot::to_word`], or 0 for `/`.
    pub base: u64,
    text: *const u8,
    length: usize,
}

impl Prefix {
    /// The first `length` bytes of `text`. An empty one is neither found nor recorded.
    ///
    /// # Safety
    /// The bytes, and [`crate::caller::task::SLACK`] bytes behind them, must be readable and must not change
    /// while this is used.
    #[inline(always)]
    pub(crate) unsafe fn new(base: u64, text: *const u8, length: usize) -> Self {
        Prefix { base, text, length }
    }

    #[inline(always)]
    fn place<'t>(&self, task: &'t Task<'_>) -> &'t CachedPrefix {
        // SAFETY: the caller of [`Prefix::new`] guarantees that the text is readable; this is the byte before
        // the slash, if there is one.
        let last = unsafe { *self.text.add(self.length.saturating_sub(2)) };
        &task.prefixes.0[(self.length + last as usize) % PLACES]
    }

    /// Whether the entry's text, which has this length, is this one.
    #[inline(always)]
    fn is_text_of(&self, entry: &CachedPrefix) -> bool {
        // SAFETY: the caller of [`Prefix::new`] guarantees SLACK bytes behind the text; an entry has at least
        // 8 behind any offset below.
        let differ = |at: usize| unsafe {
            let mine = self.text.add(at).cast::<u64>().read_unaligned();
            let other = entry.text.get().cast::<u8>().add(at).cast::<u64>().read_unaligned();
            mine ^ other
        };
        if self.length < 8 {
            return differ(0) << (64 - 8 * self.length as u32) == 0;
        }
        let last = self.length - 8;
        let mut at = 0;
        while at < last {
            if differ(at) != 0 {
                return false;
            }
            at += 8;
        }
        differ(last) == 0
    }
}

/// The directory that a prefix leads to, if it is cached. The caller must check its generation after using
/// it, as after any step of a walk.
#[inline(always)]
pub(crate) fn find(task: &Task<'_>, prefix: Prefix) -> Option<Spot> {
    let found = find_quick(task, prefix)?;
    // PAIRS: the release store in `make::free`.
    let generation = task.region.inode(found.inode.id).generation.load(Ordering::Acquire);
    (generation == found.inode.generation).then_some(found)
}

/// [`find`] for a caller that falls back to a walk if its own check finds another generation. The directory
/// may be one that was freed.
#[inline(always)]
pub(crate) fn find_quick(task: &Task<'_>, prefix: Prefix) -> Option<Spot> {
    let entry = prefix.place(task);
    // An entry's count is even, so an equal count is too.
    let known = entry.length.get() as usize == prefix.length
        && entry.base.get() == prefix.base
        && task.region.header().tree.stands_at(entry.tree.get());
    if !known || !prefix.is_text_of(entry) {
        return None;
    }
    let dir = InodeRef::from_word(entry.dir.get());
    // The mark is set before another directory can get the name. If the slot was used again, it is another
    // directory's, and the generation tells.
    let lives = !task.region.inode(dir.id).is_dead();
    lives.then(|| Spot { inode: dir, mount: MountId(u32::from(entry.mount.get())) })
}

/// [`find`] for a directory in a mount that stands in another, which is kept for `walk`.
#[cold]
pub(crate) fn find_inner(task: &Task<'_>, prefix: Prefix, walk: usize) -> Option<Spot> {
    let entry = prefix.place(task);
    let length = entry.length.get();
    let mount = MountId(u32::from(entry.mount.get()));
    if length & INNER == 0 || !walked::keep(task, walk, mount, mount, State(entry.state.get())) {
        return None;
    }
    entry.length.set(length & !INNER);
    let found = find(task, prefix);
    entry.length.set(length);
    found
}

/// Records where a prefix led. `tree` is the count that [`crate::names::walk`] read before its first step.
#[cold]
pub(crate) fn note(task: &Task<'_>, prefix: Prefix, dir: Spot, tree: u32) {
    if prefix.length > TEXT || task.region.header().tree.retry(tree) {
        return;
    }
    let state = task.region.mount(dir.mount).state();
    let is_inner = task.region.standing(dir.mount, state).parent.is_some();
    // Absolute paths of a process with a root directory of its own lead elsewhere than those of others, whose
    // task this may become.
    let is_rooted = prefix.base == 0 && task.directories.get().root.load(Ordering::Acquire) != 0;
    if state.kind() != mount_state::ATTACHED || is_rooted {
        return;
    }
    let entry = prefix.place(task);
    entry.state.set(state.0);
    entry.base.set(prefix.base);
    entry.dir.set(dir.inode.to_word());
    entry.mount.set(dir.mount.0 as u16);
    entry.tree.set(tree);
    entry.length.set(prefix.length as u16 | if is_inner { INNER } else { 0 });
    // SAFETY: the text is readable and fits; the cache belongs to the task, which makes one call at a time.
    unsafe { entry.text.get().cast::<u8>().copy_from_nonoverlapping(prefix.text, prefix.length) };
}
