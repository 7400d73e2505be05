//! Page maps and the chunks' bitmaps: every page that a map names is marked in use and named once, and every
//! page marked in use is named.

use lp_abi::linux::{S_IFMT, S_IFREG};
use lp_region::layout::CHUNK_PAGES;
use lp_region::records::{Chunk, Inode};
use lp_region::sync::{AtomicU32, Ordering::Relaxed};
use lp_region::{InodeId, InodeRef, PageId, Region};
use lp_vfs::chunk::usable;
use lp_vfs::map::{self, FANOUT, MAX_HEIGHT};
use lp_vfs::run::PageHome;
use lp_vfs::{inode, owner};

use crate::bits::Bits;
use crate::inode::{has_type, map_of};
use crate::shared::{self, Shared};
use crate::{Check, locks};

/// What is wrong with a page that a map names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageError {
    /// The page does not exist.
    Outside,
    /// Another map, or another place of this one, names it.
    Shared,
    /// It was allocated for another inode, or another place of this one.
    Foreign,
}

/// Walks page maps; visits no page twice, so it terminates on any map.
pub(crate) struct Walk<'w, 'r> {
    pub(crate) region: Region<'r>,
    /// Inode whose map it is.
    pub(crate) owner: InodeId,
    /// Others that may own its pages ([`crate::shared`]).
    pub(crate) kin: &'w [u32],
    /// The common inode that has what its inode borrows.
    pub(crate) lender: Option<InodeId>,
    /// Pages that maps name so far.
    pub(crate) claimed: &'w mut Bits,
    /// Called with each page of content and its index.
    pub(crate) content: &'w mut dyn FnMut(u64, PageId),
    /// Called with a page that must not be where it is.
    pub(crate) fault: &'w mut dyn FnMut(u32, PageError, &AtomicU32),
}

impl Walk<'_, '_> {
    /// Claims a page named by `word` at a height and an index; returns whether it may be there.
    pub(crate) fn claim(&mut self, page: u32, (height, index): (u32, u64), word: &AtomicU32) -> bool {
        let is_owner =
            |id: InodeId| owner::has(self.region, PageHome { inode: id, index }, height, PageId(page));
        let fault = if u64::from(page) > self.region.header().data_pages.load(Relaxed)
            || self.region.page_offset(PageId(page)).is_none()
        {
            PageError::Outside
        } else if height == 0 && self.is_borrowed(page, index) {
            return true;
        } else if !is_owner(self.owner) && !self.kin.iter().any(|id| is_owner(InodeId(*id))) {
            PageError::Foreign
        } else if !self.claimed.insert(page) {
            PageError::Shared
        } else {
            return true;
        };
        (self.fault)(page, fault, word);
        false
    }

    /// Whether a page of content is that of the common inode at the same place, whose map claims it.
    fn is_borrowed(&self, page: u32, index: u64) -> bool {
        self.lender.is_some_and(|common| {
            owner::has(self.region, PageHome { inode: common, index }, 0, PageId(page))
                && map::get(self.region, self.region.inode(common), index) == PageId(page)
        })
    }

    /// Visits what lies below `node`, a page that is claimed. Depth: the height.
    pub(crate) fn below(&mut self, node: u32, height: u32, base: u64) {
        if height == 0 {
            return (self.content)(base, PageId(node));
        }
        let span = 1u64 << (10 * (height - 1));
        let words = self.region.page_words(PageId(node));
        for (at, word) in words.iter().enumerate().take(FANOUT as usize) {
            let (child, base) = (word.load(Relaxed), base.saturating_add(at as u64 * span));
            if child != 0 && self.claim(child, (height - 1, base), word) {
                self.below(child, height - 1, base);
            }
        }
    }
}

impl Check<'_> {
    /// The maps of all inodes in use, then the chunks.
    pub(crate) fn pages(&mut self) {
        let fresh = self.slabs.inodes.fresh;
        self.shared = Shared::of(self.region, &self.extents, fresh, self.lanes);
        let inodes: Vec<u32> = self.extents.slots::<Inode>().take_while(|index| *index <= fresh).collect();
        for index in inodes {
            let inode = self.region.inode(InodeId(index));
            self.times(index, inode);
            if self.slabs.inodes.is_used(index) {
                self.map(index, inode);
            } else if !self.slabs.inodes.hand.has(index) && map_of(inode).0 != 0 {
                self.inconsistent(|| format!("inode {index} is free and has content"));
            }
        }
        for index in 0..self.region.chunk_count() {
            let used = self.region.chunk(index).filter(|chunk| {
                let at = core::ptr::from_ref(*chunk).addr() - self.region.base().addr();
                self.extents.has(at as u64) || self.extents.has(at as u64 + size_of::<Chunk>() as u64 - 1)
            });
            if used.is_some() {
                self.chunk(index);
            }
        }
    }

    fn map(&mut self, index: u32, inode: &Inode) {
        let (root, height) = map_of(inode);
        if height > MAX_HEIGHT {
            self.structure(|| format!("inode {index} has a page map of height {height}"));
            return;
        }
        if root == 0 {
            return;
        }
        let mut content = 0;
        let mut faults = Vec::new();
        let kin = self.shared.kin(index);
        let is_lent = self.shared.is_lent(self.region, index);
        let mut walk = Walk {
            region: self.region,
            owner: InodeId(index),
            kin: &kin,
            lender: shared::lender(self.region, index, self.slabs.inodes.fresh),
            claimed: &mut self.claimed,
            content: &mut |_, _| content += 1,
            fault: &mut |page, fault, _| {
                if faults.len() < 4 {
                    faults.push((page, fault));
                }
            },
        };
        // Its place in the inode is half of a word, which a repair does not need.
        if is_lent {
            content = map::count(self.region, inode);
        } else if walk.claim(root, (height, 0), &inode.link) {
            walk.below(root, height, 0);
        }
        for (page, fault) in faults {
            let why = match fault {
                PageError::Outside => "which is not there",
                PageError::Shared => "which stands in a map already",
                PageError::Foreign => "which was taken for another place",
            };
            self.structure(|| format!("the page map of inode {index} names page {page}, {why}"));
        }
        let said = u64::from(inode.pages.load(Relaxed));
        // The page of a symbolic link is not counted, as on tmpfs.
        let is_regular = inode.mode.load(Relaxed) & S_IFMT == S_IFREG;
        let is_half = (inode.data_seq.read() | inode.seq.read()) & 1 != 0;
        // What is still to be taken from the layer below is counted as it is there.
        if said != content && !is_half && is_regular && !lp_vfs::below::is_pending(inode) {
            self.inconsistent(|| format!("inode {index} has {content} pages, its count says {said}"));
        }
    }

    /// Checks the attributes of inodes that a path or a descriptor leads to.
    pub(crate) fn attributes(&mut self) {
        let reached = core::mem::take(&mut self.reached);
        for index in reached.iter().filter(|index| !self.slabs.inodes.hand.has(*index)).collect::<Vec<_>>() {
            self.inode(index, self.region.inode(InodeId(index)));
        }
    }

    fn inode(&mut self, index: u32, inode: &Inode) {
        let mode = inode.mode.load(Relaxed);
        if !has_type(mode) || mode & !(S_IFMT | 0o7777) != 0 {
            self.structure(|| format!("inode {index} has mode {mode:#o}, which no file has"));
        }
        if inode.size.load(Relaxed) > i64::MAX as u64 {
            self.structure(|| format!("inode {index} has a size that no file has"));
        }
        self.lock(locks::inner(&inode.lock), || format!("inode {index}"));
        self.lock(&inode.locks_lock, || format!("the locks of inode {index}"));
        let key = locks::inode_words(inode)[4].load(Relaxed);
        if key != 0 && key != index {
            self.structure(|| format!("inode {index} has the lock key {key}"));
        }
        let of = InodeRef { id: InodeId(index), generation: inode.generation.load(Relaxed) };
        if !inode::has_possible_number(self.region, of) {
            self.inconsistent(|| format!("inode {index} shows a number that it cannot have"));
        }
        let mover = inode.moving.mover();
        if mover.is_some() {
            let what = || format!("directory {index} is being moved by lane {:#x}", mover.0);
            if self.is_dead(mover) { self.leftover(what) } else { self.inconsistent(what) }
        }
        let half = inode.seq.read() & 1 != 0 || inode.data_seq.read() & 1 != 0;
        if half {
            let what = || format!("inode {index} was left half changed");
            if self.is_held_by_the_dead(inode) { self.leftover(what) } else { self.inconsistent(what) }
        }
    }

    /// Whether a page is not all zeros.
    fn holds_bytes(&self, page: PageId) -> bool {
        let Some(offset) = self.region.page_offset(page) else { return false };
        self.extents.has(offset as u64)
            && self.region.page_words(page).iter().any(|word| word.load(Relaxed) != 0)
    }

    /// Times. Some of their words are not rewritten: those of a freed inode pass to its next owner.
    fn times(&mut self, index: u32, inode: &Inode) {
        let parts = [&inode.atime.nsec, &inode.mtime.nsec, &inode.ctime_nsec];
        let zeros = [&inode.atime.zero, &inode.mtime.zero, &inode.zero];
        if parts.iter().any(|nsec| nsec.load(Relaxed) > 999_999_999)
            || zeros.iter().any(|zero| zero.load(Relaxed) != 0)
        {
            self.inconsistent(|| format!("inode {index} has a time that no clock shows"));
        }
    }

    fn chunk(&mut self, index: usize) {
        let Some(chunk) = self.region.chunk(index) else { return };
        let data_pages = self.region.header().data_pages.load(Relaxed);
        if chunk.used.iter().any(|word| word.load().lane() >= self.lanes.max(1)) {
            self.structure(|| format!("chunk {index} was changed by a lane that was never claimed"));
        }
        let (mut free, mut leaked, mut stale) = (Vec::new(), Vec::new(), Vec::new());
        for word in 0..CHUNK_PAGES / 64 {
            let used = chunk.used(word);
            let place = index * CHUNK_PAGES / 64 + word;
            let (claimed, moving) = (self.claimed.word(place), self.moving.word(place));
            let pages = |bits: u64| {
                (0..64).filter(move |bit| bits & 1 << bit != 0).map(move |bit| (place * 64 + bit) as u32)
            };
            // A page that was never handed out is assumed to be zero, by maps too.
            let clean = usable(data_pages, index, word) & !chunk.dirty[word].load(Relaxed) & !moving;
            stale.extend(pages(clean).filter(|page| self.holds_bytes(PageId(*page))));
            free.extend(pages(claimed & !used));
            leaked.extend(pages(used & !claimed & !moving & usable(data_pages, index, word)));
        }
        if let (Some(first), count) = (free.first(), free.len()) {
            self.structure(|| {
                format!(
                    "chunk {index}: {count} pages are marked free and stand in maps, the first is {first}"
                )
            });
        }
        if let (Some(first), count) = (stale.first(), stale.len()) {
            self.structure(|| {
                format!("chunk {index}: {count} pages are marked never used and are not zeros, the first is {first}")
            });
        }
        if let (Some(first), count) = (leaked.first(), leaked.len()) {
            self.leak(|| {
                format!(
                    "chunk {index}: {count} pages are marked in use and stand in no map, the first is {first}"
                )
            });
        }
    }
}
