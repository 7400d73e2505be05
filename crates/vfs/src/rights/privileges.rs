//! Privileges that a change of content removes: set-id bits and file capabilities.

use lp_abi::linux::{S_IFMT, S_IFREG, S_ISGID, S_ISUID, S_IXGRP};
use lp_region::InodeId;
use lp_region::process::caps;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;

use crate::caller::task::Task;
use crate::inodes::xattrs;
use crate::rights::credentials;

/// Removes set-user-ID, set-group-ID and file capabilities from a file that is being changed, as in
/// `file_remove_privs`. The caller must hold its lock and not be in a `seq` section.
#[inline]
pub(crate) fn drop_privileges(task: &Task, id: InodeId, inode: &Inode) {
    // Relaxed: under the lock.
    if inode.mode.load(Relaxed) & (S_ISUID | S_ISGID) | inode.xattr.load(Relaxed) != 0 {
        drop_privileges_slow(task, id, inode);
    }
}

#[cold]
fn drop_privileges_slow(task: &Task, id: InodeId, inode: &Inode) {
    if inode.xattr.load(Relaxed) != 0 {
        xattrs::drop_capability(task, id, inode);
    }
    let mode = inode.mode.load(Relaxed); // Relaxed: under the lock.
    let mut kept = mode & !S_ISUID;
    // The kernel's setattr_should_drop_sgid: without group execution it is kept for members of the group.
    if mode & S_IXGRP != 0 || !credentials::may_keep_setgid(task, inode) {
        kept &= !S_ISGID;
    }
    if kept == mode || mode & S_IFMT != S_IFREG || credentials::capable_initially(task, caps::FSETID) {
        return;
    }
    inode.seq.begin();
    inode.mode.store(kept, Relaxed); // Relaxed: inside the section.
    inode.seq.end();
}
