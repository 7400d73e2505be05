//! Programs of the layer: one that nobody has touched is executed from the layer's own file, so its text is
//! shared with the rest of the machine and nothing of it is copied.

use lp_abi::OwnedFd;
use lp_region::InodeRef;

use crate::below::host::{self, HostTree};
use crate::below::{File, Layer, list, may_call, spot};
use crate::caller::below::is_pending;
use crate::caller::task::{Task, Time};
use crate::inodes::inode;

/// The host's file behind an inode, open for reading, if it stands at `path` there, and neither the host nor
/// the session has changed anything of it.
#[cold]
pub fn untouched(task: &Task<'_>, of: InodeRef, path: &[u8]) -> Option<OwnedFd> {
    let record = task.region.inode(of.id);
    let at = spot(record).filter(|_| is_pending(record) && may_call().is_ok())?;
    let seen = list::record(task.region, at).ok()?;
    // A change of mode, owner, capabilities or names changes it, and only the session's are checked.
    let changed = Time { sec: seen.seconds[2], nsec: seen.nanoseconds[2] };
    if inode::attributes(task, of.id, record).ctime != changed {
        return None;
    }
    let file = HostTree.file(task, at).ok()?;
    // SAFETY: the buffer belongs to the task, and any path left in it has been used.
    let room = unsafe { &mut *task.scratch.outside.get() };
    let start = host::path(task.region, at, None, room).ok()?;
    let there = room[start..].strip_suffix(&[0])?;
    (there == path && file.check(&seen).is_ok()).then_some(file)
}
