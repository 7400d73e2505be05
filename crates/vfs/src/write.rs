//! write(2) and its kin.

use lp_abi::linux::{S_IFMT, S_IFREG, S_ISGID, S_ISUID, S_IXGRP};
use lp_region::process::caps;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;

use crate::task::Task;

/// Takes set-user-ID and set-group-ID away from a file that is being changed, as `file_remove_privs`. The caller holds
/// its lock and is not inside a `seq` section.
#[inline]
pub fn drop_privileges(task: &Task, inode: &Inode) {
    if inode.mode.load(Relaxed) & (S_ISUID | S_ISGID) != 0 {
        drop_privileges_slow(task, inode);
    }
}

#[cold]
fn drop_privileges_slow(task: &Task, inode: &Inode) {
    let mode = inode.mode.load(Relaxed); // Relaxed: under the lock.
    let mut kept = mode & !S_ISUID;
    if mode & S_IXGRP != 0 {
        kept &= !S_ISGID;
    }
    if kept == mode || mode & S_IFMT != S_IFREG || task.process.caps.load(Relaxed) & caps::FSETID != 0 {
        return;
    }
    inode.seq.begin();
    inode.mode.store(kept, Relaxed); // Relaxed: inside the section.
    inode.seq.end();
}
