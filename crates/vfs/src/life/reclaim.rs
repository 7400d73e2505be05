//! When open files and inodes that nothing names are looked for; how is `crate::life::sweep`'s business.
//!
//! Each lane keeps what it let go of itself: closed files in a chain, unlinked inodes in a list
//! (`Lane::unlinked`) and, if they stay in use, in a second chain. There is no lock: sweeps of several lanes
//! run side by side, and a stopped one keeps nobody else from freeing anything.

use lp_abi::{Errno, Result};
use lp_region::lane::UNLINKED;
use lp_region::records::{Inode, OpenFile};
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef};

use crate::caller::task::Task;
use crate::lane::kept::{self, Listed};
use crate::life::reap;
use crate::life::sweep::{self, Scope};

/// New candidates that make a sweep worth its barrier.
const BATCH: u32 = 64;
/// Pages of unlinked inodes that make one worth it.
const BIG: u32 = 64;

/// Frees what can be freed if enough has gathered. Called with no inode locked.
#[inline]
pub(crate) fn after_unlink(task: &Task) {
    let list = &task.lane.unlinked;
    // Relaxed: the lane's own.
    let full = list.count.load(Ordering::Relaxed) as usize >= UNLINKED;
    if full || list.pages.load(Ordering::Relaxed) >= BIG {
        sweep::run(task, Scope::Own);
    }
}

/// Keeps an open file that was taken out of a table, for close(2), and looks at once if enough has gathered
/// or if somebody may wait for it.
#[inline(never)]
pub(crate) fn closed_slow(task: &Task, id: FileId) {
    let file = task.region.file(id);
    let inode = task.region.inode(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id);
    let pressing = file.locked.load(Ordering::Relaxed) != 0 || inode.nlink.load(Ordering::Relaxed) == 0;
    kept::queue(task, id);
    if pressing {
        sweep::run(task, Scope::File(id));
    } else if task.lane.arrived[OpenFile::LIST].load(Ordering::Relaxed) >= BATCH {
        sweep::run(task, Scope::Own);
    }
}

/// A name of an inode without links is gone that was no open file's, or one's that is freed: looks whether it
/// was the last.
#[cold]
pub(crate) fn let_go_slow(task: &Task, inode: InodeRef) {
    sweep::run(task, Scope::Inode(inode));
}

/// A slot for an open file when the slab gave none: frees what can be freed and tries again.
///
/// # Errors
/// `ENFILE`.
#[cold]
pub(crate) fn file_slot_slow(task: &Task) -> Result<FileId> {
    all(task);
    task.region.take::<OpenFile>(task.lane).map_err(|_| Errno::ENFILE)
}

/// Frees whatever nothing names, in the custody of whichever lane. Called with no inode locked.
pub fn run(task: &Task) {
    sweep::run(task, Scope::All);
}

/// Frees what the lane keeps itself, as far as nothing names it.
pub(crate) fn run_own(task: &Task) {
    sweep::run(task, Scope::Own);
}

/// Frees what the lane keeps before its thread leaves it, but for closed files: few at a time are not worth a
/// sweep, as others who share them by fork mostly go on. They are the next owner's to look at.
pub(crate) fn before_leaving(task: &Task) {
    // Relaxed throughout: the lane's own.
    let [files, inodes] = &task.lane.arrived;
    let unlinked = task.lane.unlinked.count.load(Ordering::Relaxed) | inodes.load(Ordering::Relaxed);
    if unlinked != 0 || files.load(Ordering::Relaxed) >= BATCH {
        run_own(task);
    }
}

/// Frees all that can be freed, what only dead processes hold included: when something is short, and before
/// it is said how much is left. Called with no inode locked.
#[cold]
pub fn all(task: &Task) {
    reap::dead(task);
    run(task);
}

impl Listed for OpenFile {}
impl Listed for Inode {}
