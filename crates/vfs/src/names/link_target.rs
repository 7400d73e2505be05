//! The targets of symbolic links.
//!
//! A target does not change while its link lives. A short one is in the inode, a long one in its only page.

use lp_abi::{Errno, PATH_MAX, Result};
use lp_region::records::{Inode, SHORT_TARGET};
use lp_region::sync::Ordering;
use lp_region::{InodeId, Spot, ucopy};

use crate::caller::task::Task;
use crate::content::{linking, map};
use crate::inodes::inode;

/// Targets shorter than this use no page in tmpfs's count (its `SHORT_SYMLINK_LEN`): `st_blocks` is 0.
const UNCOUNTED: usize = 128;

/// Length of a link's target.
#[inline]
pub fn target_length(link: &Inode) -> usize {
    // Relaxed: validated by the inode's generation.
    (link.size.load(Ordering::Relaxed) as usize).min(PATH_MAX - 1)
}

/// Copies a link's target; `to` is as long as the target. The caller must then validate the inode's
/// generation.
///
/// # Errors
/// `ESTALE` if the link has gone meanwhile.
pub fn copy_target(task: &Task<'_>, link: &Inode, to: &mut [u8]) -> Result<()> {
    if to.len() <= SHORT_TARGET {
        for (to, from) in to.iter_mut().zip(&link.inline) {
            *to = from.load(Ordering::Relaxed);
        }
        return Ok(());
    }
    let page = map::get(task.region, link, 0);
    if page.is_none() {
        return Err(Errno::ESTALE);
    }
    // SAFETY: a target is shorter than a page. If the page has another owner by this time, the generation
    // tells.
    unsafe { ucopy::copy(to.as_mut_ptr(), task.region.page(page), to.len()) }
}

/// Stores the target of a link that nobody can reach yet.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn set_target(task: &Task<'_>, link: InodeId, target: &[u8]) -> Result<()> {
    let record = task.region.inode(link);
    if target.len() <= SHORT_TARGET {
        for (to, from) in record.inline.iter().zip(target) {
            to.store(*from, Ordering::Relaxed); // Relaxed: published with the name.
        }
    } else {
        let page = linking::grow(task, link, record, 0)?;
        // SAFETY: a target is shorter than a page, and the page belongs to this inode.
        unsafe { ucopy::copy(task.region.page(page), target.as_ptr(), target.len()) }?;
        if target.len() < UNCOUNTED {
            record.pages.store(0, Ordering::Relaxed);
        }
    }
    record.size.store(target.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// Records that a walk followed a link: its access time, under relatime.
#[inline]
pub(crate) fn followed(task: &Task<'_>, link: Spot) {
    inode::accessed(task, task.region.inode(link.inode.id), 0, || link.mount);
}
