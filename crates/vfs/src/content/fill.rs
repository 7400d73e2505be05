//! Filling pages for a write: copies into the pages that an inode has and allocates those that it lacks.

use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserSlice};
use lp_region::records::inode_flags;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, PageId};

use crate::caller::task::Task;
use crate::content::buffer::Single;
use crate::content::map::{self, Map};
use crate::content::run::{Content, PageHome, PageRun};
use crate::content::source::Source;
use crate::content::{linking, owner, page, snapshot};

/// The result of a copy into pages.
#[derive(Clone, Copy)]
pub(crate) struct Filled {
    /// Bytes copied.
    pub bytes: usize,
    /// Pages allocated: the caller must add them to [`Inode::pages`](lp_region::records::Inode::pages).
    pub pages: u64,
    /// Why it stopped early.
    pub stopped: Option<Errno>,
}

/// Copies `len` bytes, at least one, from a source to the content of inode `id` at `offset`. A source that
/// ends early counts as `EFAULT`. The caller must hold the inode's lock, be in a `data_seq` section if the
/// inode has content that is read, and publish size and pages.
#[inline(always)]
pub(crate) fn copy_pages(
    task: &Task,
    id: InodeId,
    from: &mut impl Source,
    len: usize,
    offset: u64,
) -> Filled {
    let inode = task.region.inode(id);
    let mut filled = Filled { bytes: 0, pages: 0, stopped: None };
    while filled.bytes < len {
        let at = offset + filled.bytes as u64;
        let left = len - filled.bytes;
        let index = at / PAGE_SIZE as u64;
        let within = at as usize % PAGE_SIZE;
        let pages = (within + left).div_ceil(PAGE_SIZE) as u64;
        let piece = map::piece(task.region, Map::of(inode), index, pages);
        let (wanted, got) = if piece.page.is_some() {
            let bytes = (piece.len as usize * PAGE_SIZE - within).min(left);
            let got = into_pages(task, from, piece.page, piece.len, within, bytes);
            // Relaxed: under the lock.
            if inode.flags.load(Relaxed) & inode_flags::SPACE != 0 && got != 0 {
                let len = (within + got).div_ceil(PAGE_SIZE) as u32;
                owner::set_content(task.region, PageRun { first: piece.page, len });
            }
            (bytes, got)
        } else {
            match into_hole(task, from, PageHome { inode: id, index }, piece.len, within, left) {
                Ok(made) => {
                    filled.pages += made.pages;
                    (made.wanted, made.got)
                }
                Err(errno) => {
                    filled.stopped = Some(errno);
                    break;
                }
            }
        };
        filled.bytes += got;
        if got < wanted {
            filled.stopped = Some(Errno::EFAULT);
            break;
        }
    }
    filled
}

/// Copies `bytes` bytes from a source to `len` pages, from the byte `within` of the first. Returns the number
/// copied.
pub(crate) fn into_pages(
    task: &Task,
    from: &mut impl Source,
    first: PageId,
    len: u64,
    within: usize,
    bytes: usize,
) -> usize {
    let Some(base) = snapshot::span(task.region, first, len) else { return 0 };
    // The kernel would check its own write, far out in the region's file, against the program's limit.
    let limited = task.process.fsize_limit.load(Relaxed) != u64::MAX;
    let file = if limited { Fd::NONE } else { task.region.fd() };
    // SAFETY: `span` checked that the pages are in the region.
    unsafe {
        let to = task.region.base().add(base + within);
        from.fill(to, bytes, (file, base + within))
    }
}

/// The result of filling a hole: bytes wanted, bytes copied, pages allocated.
struct Made {
    wanted: usize,
    got: usize,
    pages: u64,
}

/// Allocates pages for a hole of `pages` and fills them.
#[inline(never)]
fn into_hole(
    task: &Task,
    from: &mut impl Source,
    home: PageHome,
    pages: u64,
    within: usize,
    bytes: usize,
) -> Result<Made> {
    let inode = task.region.inode(home.inode);
    linking::prepare(task, home.inode, inode, home.index, pages)?;
    let want = pages.min(u64::from(linking::room(inode, home.index))) as u32;
    let fresh = page::take_run(task, home, want)?;
    let run = fresh.run;
    let room = run.len as usize * PAGE_SIZE;
    let wanted = (room - within).min(bytes);
    let got = into_pages(task, from, run.first, u64::from(run.len), within, wanted);
    if got == 0 {
        page::give(task);
        return Ok(Made { wanted, got, pages: 0 });
    }
    // Pages in which the fault left no byte do not belong to the file.
    let kept = (within + got).div_ceil(PAGE_SIZE);
    if fresh.content == Content::Old || got < wanted {
        page::zero(task.region, run.first, 0, within);
        let end = within + got;
        page::zero(
            task.region,
            PageId(run.first.0 + kept as u32 - 1),
            end - (kept - 1) * PAGE_SIZE,
            PAGE_SIZE,
        );
    }
    page::keep(task, kept as u32);
    linking::link(task, inode, home.index, PageRun { first: run.first, len: kept as u32 });
    Ok(Made { wanted, got, pages: kept as u64 })
}

/// Appends to content that nobody else can reach yet.
///
/// # Errors
/// `ENOSPC`; a part may have been written.
pub(crate) fn append_private(task: &Task, id: InodeId, bytes: &[u8]) -> Result<()> {
    // SAFETY: the bytes are borrowed until the call returns, and are only read.
    append_given(task, id, unsafe { UserSlice::new(bytes.as_ptr(), bytes.len()) })
}

/// [`append_private`] for bytes of the program's.
///
/// # Errors
/// Those of [`append_private`]; `EFAULT`.
pub(crate) fn append_given(task: &Task, id: InodeId, bytes: UserSlice) -> Result<()> {
    let inode = task.region.inode(id);
    let mut from = Single::new(bytes)?;
    let len = bytes.len();
    if len == 0 {
        return Ok(());
    }
    let size = inode.size.load(Relaxed); // Relaxed: nobody else has the inode.
    let filled = copy_pages(task, id, &mut from, len, size);
    // Relaxed: nobody else has the inode.
    inode.size.store(size + filled.bytes as u64, Relaxed);
    linking::more_in_section(inode, filled.pages);
    filled.stopped.map_or(Ok(()), Err)
}
