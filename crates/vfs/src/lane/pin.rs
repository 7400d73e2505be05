//! Pins: marks in a lane that keep an open file or an inode from being freed while this thread uses it. How they work is
//! [`lp_region::marks`]'s; [`crate::life::reclaim`] looks for them.

use lp_abi::{Errno, Result};
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, InodeId, InodeRef, marks};

use crate::caller::task::Task;

/// What each pin of a lane is for.
pub mod slot {
    /// The open file that a call works on.
    pub const FIRST: usize = 0;
    /// The other open file of a call with two.
    pub const SECOND: usize = 1;
    /// The inode that a path walk stands on or ended on.
    pub const WALK: usize = 2;
    /// The other one.
    pub const WALK_OTHER: usize = 3;
    /// An open file on its way into a table, or the inode it is being opened on.
    pub const OPEN: usize = 4;
    /// An open file that is being closed. No guard has it: the store that takes the file out of a table sets
    /// it, and whoever frees the file or keeps it for a sweep clears it.
    pub const CLOSE: usize = 5;
}

/// Set in a pin that names an inode; without it the pin names an open file, and through it that file's inode.
pub const INODE: u64 = 1 << 32;

/// Pins an open file. The caller checks afterwards that the file is still named from where it found it.
#[inline]
pub fn file(task: &Task, slot: usize, id: FileId) {
    marks::pin(&task.lane.pins[slot], u64::from(id.0));
}

/// Pins an inode that was found by name.
///
/// # Errors
/// `ESTALE` when it was unlinked or freed meanwhile: look the name up again.
#[inline]
pub fn inode(task: &Task, slot: usize, inode: InodeRef) -> Result<()> {
    known_inode(task, slot, inode.id);
    let record = task.region.inode(inode.id);
    // Relaxed: an inode is unlinked before the heavy barrier of the reclaim that frees it.
    let gone = record.nlink.load(Ordering::Relaxed) == 0
        || record.generation.load(Ordering::Relaxed) != inode.generation;
    if gone {
        clear(task, slot);
        return Err(Errno::ESTALE);
    }
    Ok(())
}

/// Pins an inode that something else of this thread's keeps alive: an open file, the working directory.
#[inline]
pub fn known_inode(task: &Task, slot: usize, id: InodeId) {
    marks::pin(&task.lane.pins[slot], INODE | u64::from(id.0));
}

/// A pin of an inode, taken away when this is dropped.
#[must_use = "the inode may be freed once the pin is dropped"]
pub struct Pin<'r>(&'r AtomicU64);

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        marks::unpin(self.0);
    }
}

impl Pin<'_> {
    /// Leaves the pin where it is: something else takes it away, or puts another in its place.
    #[inline]
    pub fn leave(self) {
        core::mem::forget(self);
    }
}

/// [`inode`] for as long as the guard lives.
///
/// # Errors
/// As [`inode`].
#[inline]
pub fn hold<'r>(task: &Task<'r>, slot: usize, of: InodeRef) -> Result<Pin<'r>> {
    inode(task, slot, of).map(|()| Pin(&task.lane.pins[slot]))
}

/// [`known_inode`] for as long as the guard lives.
#[inline]
pub(crate) fn hold_known<'r>(task: &Task<'r>, slot: usize, id: InodeId) -> Pin<'r> {
    known_inode(task, slot, id);
    Pin(&task.lane.pins[slot])
}

/// Takes a pin away.
#[inline]
pub fn clear(task: &Task, slot: usize) {
    marks::unpin(&task.lane.pins[slot]);
}
