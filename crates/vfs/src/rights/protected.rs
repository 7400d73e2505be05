//! The restrictions of `fs.protected_*` (proc_sys_fs(5)) on names in directories that everyone may write to.

use lp_abi::linux::{S_IFIFO, S_IFMT, S_IFREG, S_ISGID, S_ISUID, S_ISVTX, S_IWGRP, S_IWOTH, S_IXGRP};
use lp_abi::{Errno, Result};
use lp_region::process::protections;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;

use crate::caller::task::Task;
use crate::rights::{credentials, permission};

/// Whether the run has all of these [`protections`].
fn has(task: &Task<'_>, wanted: u64) -> bool {
    task.run.protections.load(Relaxed) & wanted == wanted // Relaxed: immutable while the run lives.
}

/// Checks that the caller may follow `link`, the last component of a path, in directory `dir`: the kernel's
/// may_follow_link.
///
/// # Errors
/// `EACCES`.
pub(crate) fn may_follow(task: &Task<'_>, dir: &Inode, link: &Inode) -> Result<()> {
    if !has(task, protections::SYMLINKS) {
        return Ok(());
    }
    // Relaxed, here and below: one word each, as seen.
    let owner = link.uid.load(Relaxed);
    let open = S_ISVTX | S_IWOTH;
    let allowed = owner == task.credentials.get().fsuid.load(Relaxed)
        || dir.mode.load(Relaxed) & open != open
        || owner == dir.uid.load(Relaxed);
    if allowed { Ok(()) } else { Err(Errno::EACCES) }
}

/// Checks that an open that may create a file may have the existing `file` in directory `dir`: the kernel's
/// may_create_in_sticky.
///
/// # Errors
/// `EACCES`.
pub(crate) fn may_create_over(task: &Task<'_>, dir: &Inode, file: &Inode) -> Result<()> {
    let mode = dir.mode.load(Relaxed);
    if mode & S_ISVTX == 0 {
        return Ok(());
    }
    let (any, by_group) = match file.mode.load(Relaxed) & S_IFMT {
        S_IFREG => (protections::REGULAR, protections::REGULAR_BY_GROUP),
        S_IFIFO => (protections::FIFOS, protections::FIFOS_BY_GROUP),
        _ => (0, u64::MAX),
    };
    let owner = file.uid.load(Relaxed);
    if !has(task, any)
        || owner == dir.uid.load(Relaxed)
        || owner == task.credentials.get().fsuid.load(Relaxed)
    {
        return Ok(());
    }
    let refused = mode & S_IWOTH != 0 || mode & S_IWGRP != 0 && has(task, by_group);
    if refused { Err(Errno::EACCES) } else { Ok(()) }
}

/// Checks that the caller may link `file`: the kernel's may_linkat.
///
/// # Errors
/// `EPERM`.
pub(crate) fn may_link(task: &Task<'_>, file: &Inode) -> Result<()> {
    if !has(task, protections::HARDLINKS) {
        return Ok(());
    }
    let mode = file.mode.load(Relaxed);
    let gains = mode & S_ISUID != 0 || mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP;
    let safe = mode & S_IFMT == S_IFREG
        && !gains
        && permission::check_known(task, file, permission::READ | permission::WRITE).is_ok();
    if safe || credentials::owns(task, file) { Ok(()) } else { Err(Errno::EPERM) }
}
