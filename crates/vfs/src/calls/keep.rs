//! Keeps what a walk has found until the call is done.

use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering::{Acquire, Release};
use lp_region::{InodeRef, Spot};

use crate::caller::task::Task;
use crate::lane::pin::{self, Pin};
use crate::names::dir;

/// Pins what a walk from `dirfd` has found.
///
/// # Errors
/// `ESTALE` if it was removed meanwhile: the name must be looked up again.
#[inline(always)]
pub(crate) fn hold<'r>(task: &Task<'r>, slot: usize, dirfd: Fd, found: Spot) -> Result<Pin<'r>> {
    pin::hold_found(task, slot, found).or_else(|errno| hold_removed_slow(task, slot, dirfd, found, errno))
}

/// A removed directory may be where the walk began, or one from which that was removed: `.` and `..` lead
/// there. A sweep keeps all of them while the first is in use (`Sweep::found_above`).
#[cold]
#[inline(never)]
fn hold_removed_slow<'r>(
    task: &Task<'r>,
    slot: usize,
    dirfd: Fd,
    found: Spot,
    errno: Errno,
) -> Result<Pin<'r>> {
    let pin = pin::hold_known(task, slot, found.inode.id);
    // The names of these are read after the pin is set, so a sweep that finds none of them sees the pin.
    let base = match dirfd {
        Fd::CWD => Spot::from_word(task.directories.get().cwd.load(Acquire)).inode,
        fd => task.fget_any(fd).map_or(InodeRef::NONE, |held| held.inode_ref()),
    };
    let root = Spot::from_word(task.directories.get().root.load(Acquire)).inode;
    let is_kept = root == found.inode || dir::and_above_removed(task, base).any(|above| above == found.inode);
    if !is_kept {
        return Err(errno);
    }
    // The new reference comes from another: a sweep that sees neither sees that something has moved.
    task.region.header().moves.fetch_add(1, Release);
    Ok(pin)
}
