//! Whether an inode is open, as `check_conflicting_open` asks before it gives a lease. Opens are not counted;
//! the tables of all processes are searched.

use lp_region::records::file_mode;
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{FileId, InodeRef, marks};

use crate::caller::task::Task;
use crate::descriptors::table::{self, FdTable};
use crate::lane::pin;

/// Scans before an inode counts as open, if references move all the time.
const LOOKS: u32 = 64;

/// Whether a live process has `inode` open by another open file than `own` and with an access of `modes`
/// ([`file_mode`]). Returns true when in doubt.
pub fn by_others(task: &Task, inode: InodeRef, own: FileId, modes: u32) -> bool {
    for _ in 0..LOOKS {
        let before = table::moves(task.region);
        let mut calm = true;
        for process in task.region.processes() {
            let mut hit = false;
            calm &= FdTable::of(task.region, process)
                .look_through(|file| hit |= file != own && conflicts(task, file, inode, modes));
            if hit && !task.region.process_is_dead(process, task.process_id) {
                return true;
            }
        }
        if calm && table::moves(task.region) == before {
            return false;
        }
    }
    true
}

/// Whether a call is opening `inode` that may not have seen a flag that the caller has just set in it.
/// Whoever is not seen here is in a table already, or sees the flag. Returns true when in doubt.
pub fn is_being_opened(task: &Task, inode: InodeRef) -> bool {
    // PAIRS: the light barriers of `pin`, behind which an open reads the flags.
    if !heavy_barrier() {
        return true;
    }
    task.region.lanes().any(|lane| {
        let pinned = marks::pinned(&task.region.lane(lane).pins[pin::slot::OPEN]);
        let names = match pinned {
            0 => false,
            inode_pin if inode_pin & pin::INODE != 0 => inode_pin as u32 == inode.id.0,
            file => conflicts(task, FileId(file as u32), inode, file_mode::READ | file_mode::WRITE),
        };
        names && !task.region.lane_is_dead(lane, task.process_id)
    })
}

fn conflicts(task: &Task, file: FileId, inode: InodeRef, modes: u32) -> bool {
    let file = task.region.file(file);
    // Relaxed, both: immutable while a table names the file. That it may just be closed is the caller's race.
    let mode = file.mode.load(Ordering::Relaxed);
    file.inode.load(Ordering::Relaxed) == inode.to_word() && mode & file_mode::PATH == 0 && mode & modes != 0
}
