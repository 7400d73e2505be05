//! Pins: hazard pointers in a lane that keep an open file or an inode from being freed while this thread uses
//! it. [`lp_region::marks`] describes the protocol; `life::sweep` reads the pins.

use lp_abi::{Errno, Result};
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, InodeId, InodeRef, Spot, marks};

use crate::caller::task::Task;

/// The use of each of a lane's pins.
pub mod slot {
    /// The open file that a call uses.
    pub const FIRST: usize = 0;
    /// The second open file of a call with two.
    pub const SECOND: usize = 1;
    /// The inode that a path walk is at or has ended at.
    pub const WALK: usize = 2;
    /// The second such inode.
    pub(crate) const WALK_OTHER: usize = 3;
    /// An open file that is being installed in a table, or the inode on which it is being opened.
    pub const OPEN: usize = 4;
    /// An open file that is being closed. It has no guard: the store that removes the file from a table sets
    /// the pin, and the call that frees the file or keeps it for a sweep clears it.
    pub const CLOSE: usize = 5;
}

/// Set in a pin that names an inode. Otherwise the pin names an open file, and through it that file's inode.
pub const INODE: u64 = 1 << 32;
/// Set in a pin that names an open file with its generation, which follows above.
const GENERATION: u64 = 1 << 33;
const GENERATION_SHIFT: u32 = 34;

/// A pin that names an open file with its generation: of a close that has yet to remove the file from its
/// entry. If another thread was faster, the file may be freed and its slot used again. A burial tells that by
/// the generation.
#[inline]
pub fn with_generation(task: &Task, id: FileId) -> u64 {
    // Acquire: loaded before the caller looks again whether the entry names the file.
    let generation = task.region.file(id).generation.load(Ordering::Acquire);
    u64::from(id.0) | GENERATION | u64::from(generation) << GENERATION_SHIFT
}

/// Whether a pin of an open file was set with a generation that the file does not have any more.
pub(crate) fn is_stale(task: &Task, pin: u64) -> bool {
    pin & GENERATION != 0 && pin != with_generation(task, FileId(pin as u32))
}

/// Pins an open file. The caller must then check that the place where it found the file still names it.
#[inline]
pub fn file(task: &Task, slot: usize, id: FileId) {
    marks::pin(&task.lane.pins[slot], u64::from(id.0));
}

/// Pins an inode that was found by name.
///
/// # Errors
/// `ESTALE` if it was unlinked or freed meanwhile: look the name up again.
#[inline(always)]
pub fn inode(task: &Task, slot: usize, inode: InodeRef) -> Result<()> {
    known_inode(task, slot, inode.id);
    let record = task.region.inode(inode.id);
    // Relaxed: an inode is unlinked before the heavy barrier of the sweep that frees it.
    let gone = record.is_dead() || record.generation.load(Ordering::Relaxed) != inode.generation;
    if gone {
        clear(task, slot);
        return Err(Errno::ESTALE);
    }
    Ok(())
}

/// Pins an inode that another reference of this thread keeps alive: an open file, the working directory.
#[inline]
pub fn known_inode(task: &Task, slot: usize, id: InodeId) {
    marks::pin(&task.lane.pins[slot], INODE | u64::from(id.0));
}

/// A pin of an inode; dropping this clears it.
#[must_use = "the inode may be freed once the pin is dropped"]
pub struct Pin<'r>(&'r AtomicU64);

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        marks::unpin(self.0);
    }
}

impl Pin<'_> {
    /// Leaves the pin set: something else clears or replaces it.
    #[inline]
    pub fn leave(self) {
        core::mem::forget(self);
    }
}

/// [`inode`] for as long as the guard lives.
///
/// # Errors
/// Those of [`inode`].
#[inline(always)]
pub fn hold<'r>(task: &Task<'r>, slot: usize, of: InodeRef) -> Result<Pin<'r>> {
    inode(task, slot, of).map(|()| Pin(&task.lane.pins[slot]))
}

/// [`hold`] for what a walk found in a mount: its root needs no name of its own.
///
/// # Errors
/// As [`inode`].
#[inline(always)]
pub(crate) fn hold_found<'r>(task: &Task<'r>, slot: usize, found: Spot) -> Result<Pin<'r>> {
    hold(task, slot, found.inode).or_else(|errno| hold_root_slow(task, slot, found, errno))
}

#[cold]
fn hold_root_slow<'r>(task: &Task<'r>, slot: usize, found: Spot, errno: Errno) -> Result<Pin<'r>> {
    let pin = hold_known(task, slot, found.inode.id);
    let mount = task.region.mount(found.mount);
    let state = mount.state();
    // A record keeps its root's word after its mount has ended. If the mount was there after the pin was set,
    // a sweep that frees its root comes later and sees the pin.
    let is_kept = state.is_mount() && mount.root() == found.inode && mount.state() == state;
    if is_kept { Ok(pin) } else { Err(errno) }
}

/// [`known_inode`] for as long as the guard lives.
#[inline]
pub fn hold_known<'r>(task: &Task<'r>, slot: usize, id: InodeId) -> Pin<'r> {
    known_inode(task, slot, id);
    Pin(&task.lane.pins[slot])
}

/// The pin that an earlier step of the call has set.
#[inline(always)]
pub(crate) fn held<'r>(task: &Task<'r>, slot: usize) -> Pin<'r> {
    Pin(&task.lane.pins[slot])
}

/// Clears a pin that a step of an open, a close or an exec set for the steps after it. [`Pin`] is for the
/// others.
#[inline]
pub fn clear(task: &Task, slot: usize) {
    marks::unpin(&task.lane.pins[slot]);
}
