//! ETXTBSY: a file is either open for writing or executed. Neither is counted, as `i_writecount` does; the
//! processes are searched.
//!
//! Each side first says what it does and then looks at the other. Who executes a file names it in the
//! process's record, sets [`inode_flags::EXECUTED`], and searches the tables. Who opens it for writing has
//! pinned the inode, reads the flag, and searches the records. An exec that finds the inode pinned waits for
//! a moment.

use lp_abi::{Errno, Result};
use lp_region::records::{file_mode, inode_flags};
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef, Spot};

use crate::caller::task::Task;
use crate::descriptors::opened;
use crate::inodes::{inode, reflink};

/// Looks at an open under way, which may be that of a stopped thread, before an exec goes on.
const LOOKS: u32 = 1000;

/// Marks a file as executed by the calling process, whose record names it already.
///
/// # Errors
/// `ETXTBSY` if it is open for writing: the caller restores the record. `ENOMEM` without pages for a copy of
/// content that it shares.
pub fn execute(task: &Task, program: Spot) -> Result<()> {
    let of = program.inode;
    let record = task.region.inode(of.id);
    let held = reflink::lock_unshared(task, program).map_err(|_| Errno::ENOMEM)?;
    record.flags.store(record.flags.load(Ordering::Relaxed) | inode_flags::EXECUTED, Ordering::Relaxed);
    drop(held);
    for _ in 0..LOOKS {
        if !opened::is_being_opened(task, of) {
            break;
        }
        lp_region::sync::pause();
    }
    if is_written(task, of) { Err(Errno::ETXTBSY) } else { Ok(()) }
}

/// Whether a file that has [`inode_flags::EXECUTED`] may be written to. Clears the flag if nobody executes
/// it.
///
/// # Errors
/// `ETXTBSY`.
#[cold]
pub(crate) fn may_write_slow(task: &Task, of: InodeRef) -> Result<()> {
    if is_executed(task, of) {
        return Err(Errno::ETXTBSY);
    }
    let record = task.region.inode(of.id);
    let _held = inode::lock(task, of.id);
    // Look again: an exec names the file before it sets the flag under the lock.
    if is_executed(task, of) {
        return Err(Errno::ETXTBSY);
    }
    record.flags.store(record.flags.load(Ordering::Relaxed) & !inode_flags::EXECUTED, Ordering::Relaxed);
    Ok(())
}

/// Whether a live process executes `inode`.
fn is_executed(task: &Task, inode: InodeRef) -> bool {
    task.region.processes().any(|id| {
        let exe = Spot::from_word(task.region.process(id).exe.load(Ordering::Acquire));
        exe.inode == inode && (id == task.process_id || !task.region.process_is_dead(id, task.process_id))
    })
}

/// Whether a living process has `inode` open for writing.
pub fn is_written(task: &Task, inode: InodeRef) -> bool {
    opened::by_others(task, inode, FileId::NONE, file_mode::WRITE)
}
