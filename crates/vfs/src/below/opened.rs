//! Content that open files still lack.

use lp_abi::linux::S_IFREG;
use lp_region::records::{file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;

use crate::below::content::SMALL;
use crate::caller::below;
use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;

/// Takes in what the small files that the process has open for reading still lack: it is about to change who
/// it is or where its paths lead, and may not reach the layer afterwards. What fails now fails when it is
/// read.
#[cold]
pub fn complete(task: &Task<'_>) {
    for (fd, _) in task.table.open() {
        if let Ok(held) = task.fget(fd) {
            complete_file(task, &held);
        }
    }
}

/// [`complete`] for one file: it is sent to a process that may not reach the layer.
#[cold]
pub fn complete_file(task: &Task<'_>, held: &HeldFile<'_>) {
    let inode = held.inode;
    // Relaxed, all: immutable, and the size is as long as content is missing.
    let is_small =
        inode.flags.load(Relaxed) & inode_flags::KIND == S_IFREG && inode.size.load(Relaxed) <= SMALL;
    if is_small && held.file.mode.load(Relaxed) & file_mode::READ != 0 {
        let _ = below::complete(task, inode);
    }
}
