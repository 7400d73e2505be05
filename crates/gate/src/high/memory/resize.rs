//! Mappings of files whose size has changed: what they have grown by is mapped in, what they have shrunk by
//! removed.

use lp_abi::Result;
use lp_vfs::task::Task;

use crate::high::memory::areas::{self, Area, LockedAreas};
use crate::high::memory::fill::{self, Content};
use crate::high::memory::kept;

/// Files may have changed size: where this process maps them, maps in what they have grown by and removes
/// what they have shrunk by.
#[inline]
pub(crate) fn resized(task: &Task) {
    if !areas::is_empty() {
        grown(task);
    }
}

/// The same after a call of this process that may have written beyond the end of a file: the program may pass
/// the new pages to the kernel before it touches them.
#[inline(always)]
pub(crate) fn written(task: &Task) {
    if areas::may_reach_beyond() {
        settle_all(task, |area| area.beyond < area.end);
    }
}

/// Adapts the area at `index` to its file's size. Returns whether it has grown.
///
/// # Errors
/// Those of [`fill::fill`].
pub(crate) fn settle(task: &Task, list: &mut LockedAreas, index: usize) -> Result<bool> {
    let Some(mut area) = list.areas().get(index).copied() else { return Ok(false) };
    let (end, before) = (area.end_of_file(task), area.beyond);
    if end < before {
        let kept = kept::of(task, end, before);
        fill::past_the_end(end, before, area.protection)?;
        list.holes().reserve(1)?;
        list.cut_holes(end, before);
        area.beyond = end;
        kept.restore(task, &area);
    } else if end > before {
        let Some(mut grown) = area.cut(before, area.end) else { return Ok(false) };
        let kept = kept::of(task, grown.start, grown.end);
        fill::fill(task, list, &mut grown, Content::of(area.protection, 0))?;
        area.beyond = grown.beyond;
        kept.restore(task, &grown);
    }
    list.areas()[index].beyond = area.beyond;
    Ok(area.beyond > before)
}

/// Maps in what files have grown by, after a call that could not use some of the program's memory. Returns
/// whether there was anything. The caller must hold no lock.
#[cold]
pub(crate) fn grown(task: &Task) -> bool {
    if areas::is_empty() {
        return false;
    }
    settle_all(task, |_| true)
}

/// Adapts the areas that may differ from their files. Returns whether any has grown.
#[cold]
fn settle_all(task: &Task, may_differ: impl Fn(&Area) -> bool) -> bool {
    let mut list = areas::list();
    (0..list.areas().len()).fold(false, |grown, index| {
        let is_meant = list.areas().get(index).is_some_and(&may_differ);
        grown | (is_meant && settle(task, &mut list, index).unwrap_or(false))
    })
}
