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

/// Longest text of an entry.
pub(super) const TEXT: usize = 104;

/// Number of entries; a text has one possible place.
const PLACES: usize = 8;

/// Bit of [`CachedPrefix::length`]: the mount stands in another, so it may go, and whoever walks into it
/// keeps it. [`crate::caller::prefixes::find`] has no time for that and skips it.
pub(super) const INNER: u16 = 1 << 15;

/// A cached prefix: where its text leads.
pub(super) struct CachedPrefix {
    /// Where the text starts: a directory, as [`Spot::to_word`](lp_region::Spot::to_word), or 0 for `/`.
    pub(super) base: Cell<u64>,
    /// The directory, as [`InodeRef::to_word`](lp_region::InodeRef::to_word).
    pub(super) dir: Cell<u64>,
    /// `Header::tree` when that was true.
    pub(super) tree: Cell<u32>,
    /// Bytes of the text, and [`INNER`]; 0 if there is no entry.
    pub(super) length: Cell<u16>,
    /// The mount through which the directory is reached.
    pub(super) mount: Cell<u16>,
    /// Its state ([`State`](lp_region::mount::State)), if it stands in another.
    pub(super) state: Cell<u32>,
    pub(super) text: UnsafeCell<[u8; TEXT]>,
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
    /// Where it starts: a directory, as [`Spot::to_word`](lp_region::Spot::to_word), or 0 for `/`.
    pub base: u64,
    pub(super) text: *const u8,
    pub(super) length: usize,
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
    pub(super) fn place<'c>(&self, cache: &'c PrefixCache) -> &'c CachedPrefix {
        // SAFETY: the caller of [`Prefix::new`] guarantees that the text is readable; this is the byte before
        // the slash, if there is one.
        let last = unsafe { *self.text.add(self.length.saturating_sub(2)) };
        &cache.0[(self.length + last as usize) % PLACES]
    }

    /// Whether the entry's text, which has this length, is this one.
    #[inline(always)]
    pub(super) fn is_text_of(&self, entry: &CachedPrefix) -> bool {
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
