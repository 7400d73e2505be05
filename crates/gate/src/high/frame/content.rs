//! Reads files of ours for the gate's own use.

use lp_abi::Result;
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_vfs::task::Task;
use lp_vfs::{below, read};

/// Reads a file of ours.
pub(crate) fn read_at(task: &Task, inode: &Inode, to: &mut [u8], at: u64) -> Result<usize> {
    below::complete(task, inode)?;
    // Pages past the end of the file are not readable.
    let left = inode.size.load(Ordering::Relaxed).saturating_sub(at); // Relaxed: the copy validates it.
    let length = (to.len() as u64).min(left) as usize;
    read::into(task.region, inode, &mut to[..length], at)
}
