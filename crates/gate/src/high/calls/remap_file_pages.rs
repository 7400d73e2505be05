//! remap_file_pages(2) on files of ours.

use lp_abi::linux::MAP_FIXED;
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, ret};
use crate::high::memory::areas::{self, Area, LockedAreas, Sharing};
use crate::high::memory::fill::{self, Content};
use crate::high::run::own;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// remap_file_pages(2).
    fn remap_file_pages(task, address: usize, length: usize, protection: u32, page: u64) {
        let (start, bytes) = (address & !(PAGE_SIZE - 1), length & !(PAGE_SIZE - 1));
        if let Some(refused) = own::refused(start, bytes) {
            return refused;
        }
        let mut list = areas::list();
        let Some(area) = list.find(start, start.saturating_add(1)).map(|area| *area) else { return NOT_OURS };
        if protection != 0 {
            return Errno::EINVAL.to_ret();
        }
        ret(other_pages(task, &mut list, &area, start, bytes, page).map(|_| 0usize))
    }
}

/// Maps other pages of the file at `start`, in `area` and what continues it.
fn other_pages(
    task: &Task,
    list: &mut LockedAreas,
    area: &Area,
    start: usize,
    bytes: usize,
    page: u64,
) -> Result<usize> {
    let end = start.checked_add(bytes).filter(|end| *end > start).ok_or(Errno::EINVAL)?;
    page.checked_add((bytes / PAGE_SIZE) as u64).ok_or(Errno::EINVAL)?;
    let mut last = *area;
    while last.end < end {
        let next = list.find(last.end, last.end + 1).map(|next| *next).ok_or(Errno::EINVAL)?;
        let continues =
            next.of == last.of && next.sharing == last.sharing && next.protection == last.protection;
        last = if continues { next } else { return Err(Errno::EINVAL) };
    }
    if area.sharing == Sharing::Private {
        return Err(Errno::EINVAL);
    }
    let offset = page.checked_mul(PAGE_SIZE as u64).ok_or(Errno::EOVERFLOW)?;
    offset.checked_add(bytes as u64).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EOVERFLOW)?;
    mapping::grow(task, area.of, bytes)?;
    let other = Area { start: 0, end: bytes, beyond: bytes, offset, ..*area };
    let made = fill::place(task, list, other, start, MAP_FIXED, Content::of(area.protection, 0));
    if made.is_err() {
        mapping::end(task, area.of, bytes);
    }
    made
}
