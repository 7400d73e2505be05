//! Large holes of mapped files, which get pages when they are touched.
//!
//! A hole is mapped like memory past a file's end: as an empty memfd, which raises SIGBUS. The fault
//! allocates pages around the address, under the file's lock, and maps them; whoever else has mapped the hole
//! finds them at its own fault, and read(2) and write(2) see what they always see. A hole that is read gets
//! pages, too, as on tmpfs. Content of a layer below that is still to be taken is a hole as well; a process
//! takes it all before it changes its root directory or its user, who may not reach the layer. Sequential
//! faults take more pages each time, and so do all faults once holes are in many pieces, because the kernel
//! allows a process some 65,000 mappings. Which signals may be blocked meanwhile, `bus.rs` says. A fault also
//! tells whether the program writes (`written.rs`).

use lp_abi::linux::iovec;
use lp_abi::{PAGE_SIZE, Result};
use lp_region::ucopy;
use lp_vfs::below;
use lp_vfs::task::Task;

use crate::high::memory::areas::{self, Area, Hole, LockedAreas};
use crate::high::memory::fill::{self, Content};
use crate::high::memory::sorted::Span;
use crate::high::memory::{bus, kept, missing};
use crate::low::above::Access;

/// Pages that a fault allocates, aligned, while there are few pieces.
const WINDOW: usize = 16;
/// Most pages that a sequence of faults allocates at once.
const LONGEST: usize = 512;
/// Most elements of a vector (`UIO_MAXIOV`).
const VECTOR: usize = 1024;
/// Pieces of holes at which the window grows fourfold, and again at the next three multiples.
const PIECES: usize = 4096;

/// The pages to allocate for a fault at `address` in a hole.
fn window(list: &mut LockedAreas, address: usize, hole: (usize, usize)) -> (usize, usize) {
    let page = address & !(PAGE_SIZE - 1);
    let pieces = list.holes().count();
    let widened = WINDOW << (2 * (pieces / PIECES).min(4));
    let ahead = list.ahead();
    let (start, pages) = match ahead.next == page {
        true => (page, (ahead.pages * 2).clamp(widened, LONGEST.max(widened))),
        false => (page & !(widened * PAGE_SIZE - 1), widened),
    };
    let end = (start + pages * PAGE_SIZE).min(hole.1);
    ahead.next = end;
    ahead.pages = pages;
    // A list without space for another piece loses one.
    let start = if pieces + 1 < Hole::MOST { start.max(hole.0) } else { hole.0 };
    (start, end)
}

/// Handles a fault at `address`: whether it was in a hole, which now has pages; `None` if there is no hole.
pub(crate) fn fault(task: &Task, list: &mut LockedAreas, address: usize, access: Access) -> Option<bool> {
    let hole = list.holes().find(address, address + 1).map(|hole| (hole.start, hole.end))?;
    let area = list.find(address, address + 1)?;
    let was_written = area.is_written;
    area.is_written |= access == Access::Write && missing::is_told(area);
    let area = *area;
    let (start, end) = window(list, address, (hole.0.max(area.start), hole.1.min(area.end)));
    if give_pages(task, list, start, end).is_err() {
        // There may be space for one page still.
        let page = address & !(PAGE_SIZE - 1);
        let _ = give_pages(task, list, page, page + PAGE_SIZE);
    }
    let is_mended = list.hole_in(address, address + 1).is_none();
    if !is_mended && let Some(area) = list.find(address, address + 1) {
        area.is_written = was_written;
    }
    Some(is_mended)
}

/// Gives pages to what of `start..end` is a hole, as far as files reach.
///
/// # Errors
/// `ENOMEM`; those of the layer below for content still to be taken.
pub(crate) fn give_pages(task: &Task, list: &mut LockedAreas, start: usize, end: usize) -> Result<()> {
    give_some(task, list, (start, end), &|_| true)
}

/// [`give_pages`] to the holes of the areas that `which` selects.
fn give_some(
    task: &Task,
    list: &mut LockedAreas,
    (start, end): (usize, usize),
    which: &dyn Fn(&Area) -> bool,
) -> Result<()> {
    let mut at = start;
    while let Some((from, to)) = list.hole_in(at, end) {
        let Some(area) = list.find(from, to).map(|area| *area) else { break };
        let Some(mut part) = area.cut(from, to) else { break };
        at = part.end;
        if !which(&area) {
            continue;
        }
        list.holes().reserve(1)?;
        let kept = kept::of(task, part.start, part.end);
        fill::fill(task, list, &mut part, Content::Whole)?;
        kept.restore(task, &part);
    }
    Ok(())
}

/// Gives pages to the holes in `length` bytes at `address`, as far as there are some.
pub(crate) fn touch(task: &Task, address: usize, length: usize) {
    if bus::exist() && length != 0 {
        let end = address.saturating_add(length);
        let end = end.checked_next_multiple_of(PAGE_SIZE).unwrap_or(end);
        let _ = give_pages(task, &mut areas::list(), address & !(PAGE_SIZE - 1), end);
    }
}

/// [`touch`] for a vector of readv(2) and similar calls, and what it names.
pub(crate) fn touch_vector(task: &Task, at: usize, count: usize) {
    for index in 0..count.min(VECTOR) {
        let element = at.wrapping_add(index * size_of::<iovec>());
        touch(task, element, size_of::<iovec>());
        // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid element.
        let Ok([start, length]) = (unsafe { ucopy::get(element as *const [usize; 2]) }) else { return };
        touch(task, start, length);
    }
}

/// Takes in what mapped files still lack from the layer below: the process may be about to lose its way
/// there.
#[cold]
pub(crate) fn complete(task: &Task) {
    let lacks = |area: &Area| below::is_pending(task.region.inode(area.of.id));
    // A failure shows as SIGBUS when the memory is touched.
    let _ = give_some(task, &mut areas::list(), (0, usize::MAX), &lacks);
}
