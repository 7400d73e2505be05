//! Content of files of ours for the gate's own use.

use lp_abi::Result;
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_vfs::task::Task;
use lp_vfs::{below, read};

/// Reads a file of ours.
pub fn read_at(task: &Task, inode: &Inode, to: &mut [u8], at: u64) -> Result<usize> {
    below::complete(task, inode)?;
    // Content past what the file has is not there to read.
    let left = inode.size.load(Ordering::Relaxed).saturating_sub(at); // Relaxed: checked by the copy.
    let length = (to.len() as u64).min(left) as usize;
    read::into(task.region, inode, &mut to[..length], at)
}
