//! Sources of a write's bytes: the program's memory, another file's pages, a pipe.

use lp_abi::{Fd, PAGE_SIZE, UserSlice};
use lp_region::Region;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::sync::{acquire_fence, pause, spin};

use crate::content::buffer::{self, Buffer};
use crate::content::bulk::{self, Direction};
use crate::content::map::{self, Extent, Map};
use crate::content::snapshot;

/// Checks, and then sleeps of at least 50 us, for which a source waits in all until nobody changes the file.
const SPINS: u32 = 2000;
const PAUSES: u32 = 100;
/// Copies tried under an unchanged sequence count before a source falls back to page by page.
const TRIES: u32 = 64;

/// The bytes of a hole.
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// A source of bytes that a write consumes. It is read while the target's lock is held, so it must not wait
/// for longer than a moment.
pub(crate) trait Source {
    /// Whether the write notifies watchers of the target; if not, its caller must.
    const IS_TOLD: bool = true;
    /// Whether it is memory of the program's: then the kernel sets the target's times before it copies.
    const IS_MEMORY: bool = true;

    /// Copies up to `bytes` bytes to `pages`, which lie in the region's file at `file` (descriptor, -1 if
    /// there is none, and offset). Returns the number copied, which is smaller if the source ends or faults.
    ///
    /// # Safety
    /// `pages` must be valid for `bytes` bytes.
    unsafe fn fill(&mut self, pages: *mut u8, bytes: usize, file: (Fd, usize)) -> usize;

    /// All of it, if it is one piece of the program's memory.
    fn whole(&self) -> Option<UserSlice>;
}

impl<B: Buffer> Source for B {
    #[inline(always)]
    unsafe fn fill(&mut self, pages: *mut u8, bytes: usize, file: (Fd, usize)) -> usize {
        // SAFETY: the caller guarantees `pages` for `bytes` bytes, and their place in the file.
        unsafe { buffer::copy(Direction::In, pages, self, bytes, file) }
    }

    #[inline(always)]
    fn whole(&self) -> Option<UserSlice> {
        Buffer::whole(self)
    }
}

/// Content of a file, from an offset, which several writes may consume.
///
/// Takes no lock on the file. Each piece is checked after it was copied: the sequence count must not have
/// changed and the map must still name the pages. Otherwise they may have been recycled meanwhile, and the
/// piece is copied again. The map is checked even under an unchanged odd count, because a truncation frees
/// pages within its section. A writer that has lost its processor is waited for, but not one that is stopped:
/// then a page may be copied as it is half written.
pub(crate) struct FileContent<'r> {
    region: Region<'r>,
    inode: &'r Inode,
    at: u64,
    patience: u32,
}

impl<'r> FileContent<'r> {
    /// The content of `inode` from `at`.
    pub(crate) fn new(region: Region<'r>, inode: &'r Inode, at: u64) -> Self {
        FileContent { region, inode, at, patience: SPINS + PAUSES }
    }

    /// The same for a write to that very file, whose section is the writer's own.
    pub(crate) fn of_target(region: Region<'r>, inode: &'r Inode, at: u64) -> Self {
        FileContent { patience: 0, ..FileContent::new(region, inode, at) }
    }

    /// The sequence count: even, unless patience has run out.
    fn settled(&mut self) -> u32 {
        loop {
            let count = self.inode.data_seq.read();
            if count & 1 == 0 || self.patience == 0 {
                return count;
            }
            self.patience -= 1;
            if self.patience >= PAUSES { spin() } else { pause() }
        }
    }

    fn piece(&self, most: usize) -> Extent {
        let pages = (self.at as usize % PAGE_SIZE + most).div_ceil(PAGE_SIZE) as u64;
        map::piece(self.region, Map::of(self.inode), self.at / PAGE_SIZE as u64, pages)
    }

    /// Copies from the piece at the offset. Returns the number of bytes, 0 at the end, and the piece. `pages`
    /// must be valid for `most` bytes.
    unsafe fn copy(&self, pages: *mut u8, most: usize, file: (Fd, usize)) -> (usize, Extent) {
        let piece = self.piece(most);
        let within = self.at as usize % PAGE_SIZE;
        let there = (piece.len as usize * PAGE_SIZE - within).min(most);
        let (from, bytes) = match snapshot::span(self.region, piece.page, piece.len) {
            // SAFETY: `span` checked that the pages are in the region.
            Some(base) => (unsafe { self.region.base().add(base + within) }, there),
            None => (ZEROS.as_ptr().cast_mut(), there.min(PAGE_SIZE)),
        };
        // SAFETY: the caller guarantees `pages` for `most` bytes.
        (unsafe { bulk::copy(Direction::In, pages, from, bytes, file) }, piece)
    }

    fn still_has(&self, piece: Extent, most: usize) -> bool {
        piece.page.is_none() || self.piece(most) == piece
    }
}

impl Source for &mut FileContent<'_> {
    // The source's read was reported first.
    const IS_TOLD: bool = false;
    const IS_MEMORY: bool = false;

    unsafe fn fill(&mut self, pages: *mut u8, bytes: usize, file: (Fd, usize)) -> usize {
        let (mut done, mut tries) = (0, 0);
        while done < bytes {
            let before = self.settled();
            let size = self.inode.size.load(Relaxed); // Relaxed: ordered and validated by `data_seq`.
            let mut most = (bytes - done).min(size.saturating_sub(self.at) as usize);
            if tries >= TRIES {
                most = most.min(PAGE_SIZE - self.at as usize % PAGE_SIZE);
            }
            if most == 0 {
                break;
            }
            // SAFETY: the caller guarantees `pages` for `bytes` bytes, of which `done` are done.
            let (copied, piece) = unsafe { self.copy(pages.add(done), most, (file.0, file.1 + done)) };
            // PAIRS: the release store that unlinks a page in `linking::clear`, before the page is freed.
            acquire_fence();
            let stood = self.inode.data_seq.read() == before;
            if !self.still_has(piece, most) || !stood && tries < TRIES {
                tries += 1;
                continue;
            }
            if copied == 0 {
                break;
            }
            self.at += copied as u64;
            done += copied;
        }
        done
    }

    fn whole(&self) -> Option<UserSlice> {
        None
    }
}
