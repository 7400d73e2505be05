//! The root directory of a process if chroot(2) has put it into a mount. Like `fs_struct::root`.
//!
//! Absolute paths and the absolute targets of symbolic links start there, and `..` of it is itself. The
//! kernel's root stays where it is, so a path of the kernel's or of the gate's own is not affected.
//!
//! What hot calls use to recognise absolute paths is [`crate::caller::mount_prefix::MountPrefix`], which such
//! a process blocks. Its absolute paths are not recorded in the cache of prefixes, and a change of the root
//! counts as a change of where paths lead.

use lp_region::Spot;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::names::tree;

/// The root directory; `None` if it is the kernel's.
#[inline]
pub fn of(task: &Task<'_>) -> Option<Spot> {
    let root = task.directories.get().root.load(Ordering::Acquire); // PAIRS: the release store in `set`.
    (root != 0).then(|| Spot::from_word(root))
}

/// Whether this is the root directory.
#[inline]
pub(crate) fn is(task: &Task<'_>, spot: Spot) -> bool {
    of(task) == Some(spot)
}

/// Changes the root directory. The caller keeps it from being freed, and blocks the prefixes of other threads
/// afterwards.
#[cold]
pub(crate) fn set(task: &Task<'_>, root: Option<Spot>) {
    let shift = tree::shift(task);
    // Release: a scan for users of an inode sees the directory here before the pin is cleared.
    task.directories.get().root.store(root.map_or(0, Spot::to_word), Ordering::Release);
    drop(shift);
    task.prefix.follow(task.process);
}
