//! ETXTBSY: whether a file is open for writing, as `deny_write_access` asks before an exec. Writers are not
//! counted; the tables of all processes are searched.

use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef, ProcessId};

use crate::caller::task::Task;
use crate::descriptors::table::FdTable;

/// Whether a live process has `inode` open for writing.
pub fn is_written(task: &Task, inode: InodeRef) -> bool {
    let lives = |id| id == task.process_id || !task.region.process_is_dead(id, task.process_id);
    task.region.processes().any(|id| writes(task, id, inode) && lives(id))
}

fn writes(task: &Task, id: ProcessId, inode: InodeRef) -> bool {
    FdTable::of(task.region, id).open().any(|(_, word)| {
        let file = task.region.file(FileId(word as u32));
        // Relaxed: immutable while a table names the file. That it may just be closed is the caller's race.
        let mode = file.mode.load(Ordering::Relaxed);
        mode & (file_mode::WRITE | file_mode::PATH) == file_mode::WRITE
            && file.inode.load(Ordering::Relaxed) == inode.to_word()
    })
}
