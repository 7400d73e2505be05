//! Leases (fcntl(2), `F_SETLEASE`): a lease on a file is the kernel's lease on the file's shadow.
//!
//! Opens of a file with a shadow open the shadow too, so the kernel knows who has it open, refuses a lease,
//! breaks it, waits for its holders, and ends it with the last descriptor. Who opens or truncates a file that
//! has [`inode_flags::LEASED`] does so to the shadow first, and waits there (`lease_break.rs`). Opens from
//! before the shadow are found in the tables of all processes.

use lp_abi::linux::{__NR_fcntl, F_GETLEASE, F_RDLCK, F_SETLEASE, F_UNLCK, F_WRLCK};
use lp_abi::{Errno, Fd, Result};
use lp_region::records::{file_mode, inode_flags};
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef};
use lp_vfs::pin::Pin;
use lp_vfs::task::Task;
use lp_vfs::walk::Found;
use lp_vfs::watch;
use lp_vfs::{fcntl, inode, opened, pin};

use crate::high::fd::descriptor;
use crate::high::watch::{shadow_fd, shadow_make, signalled};

/// `F_GETLEASE`: the lease of an open file.
///
/// # Errors
/// Those of fcntl(2).
pub(crate) fn get(task: &Task, fd: Fd) -> Result<usize> {
    match shadow_fd::of(task, descriptor::word(task, fd)) {
        None => Ok(F_UNLCK as usize),
        // SAFETY: no pointer is passed.
        Some(shadow) => unsafe { lp_abi::syscall!(__NR_fcntl, shadow, F_GETLEASE, 0) },
    }
}

/// `F_SETLEASE`.
///
/// # Errors
/// Those of fcntl(2): `EINVAL`, `EACCES`, `EAGAIN`; `EAGAIN` also for a file without a name.
pub(crate) fn set(task: &'static Task<'static>, fd: Fd, kind: u32) -> Result<usize> {
    if ![F_RDLCK, F_WRLCK, F_UNLCK].contains(&kind) {
        return Err(Errno::EINVAL);
    }
    let held = task.fget_any(fd)?;
    fcntl::may_lease(task, &held)?;
    let (file, of) = (held.id, held.inode_ref());
    if kind != F_UNLCK {
        let is_leased = held.inode.flags.load(Ordering::Relaxed) & inode_flags::LEASED != 0;
        let found = Found::of(&held);
        let flags = held.file.flags.load(Ordering::Relaxed); // Relaxed: one word, as seen.
        // While the open file keeps the inode.
        let pin = pin::hold_known(task, pin::slot::WALK, of.id);
        drop(held);
        prepare(task, fd, flags, &found, pin, is_leased)?;
        let modes = if kind == F_RDLCK { file_mode::WRITE } else { file_mode::READ | file_mode::WRITE };
        if opened::by_others(task, of, file, modes) {
            return Err(Errno::EAGAIN);
        }
    } else {
        drop(held);
    }
    let shadow = shadow_fd::of(task, descriptor::word(task, fd)).ok_or(Errno::EAGAIN)?;
    if kind != F_UNLCK {
        signalled::own(task, fd)?;
        signalled::copy(task, fd);
    }
    // SAFETY: no pointer is passed.
    unsafe { lp_abi::syscall!(__NR_fcntl, shadow, F_SETLEASE, kind) }
}

/// Gives a file and its descriptors in this process a shadow, and makes opens wait there.
fn prepare(
    task: &'static Task<'static>,
    fd: Fd,
    flags: u32,
    found: &Found,
    pin: Pin<'_>,
    is_leased: bool,
) -> Result<()> {
    let has_shadow = shadow_fd::of(task, descriptor::word(task, fd)).is_some();
    if is_leased && has_shadow {
        return Ok(());
    }
    shadow_make::give(task, found, inode_flags::LEASED).map_err(|_| Errno::EAGAIN)?;
    drop(pin);
    if !is_leased && opened::is_being_opened(task, found.inode) {
        unmark(task, found.inode);
        return Err(Errno::EAGAIN);
    }
    if !has_shadow {
        shadow_fd::open(task, fd, flags);
        let file = FileId(descriptor::word(task, fd) as u32);
        for (other, word) in task.table.open().filter(|(_, word)| *word as u32 == file.0) {
            if other != fd && shadow_fd::of(task, word).is_none() {
                shadow_fd::duplicate(task, fd, other);
            }
        }
    }
    Ok(())
}

/// Makes the next `F_SETLEASE` look again for opens that have not seen the flag.
fn unmark(task: &Task, of: InodeRef) {
    let _held = inode::lock(task, of.id);
    watch::forget(task.region.inode(of.id), inode_flags::LEASED);
}
