//! `F_NOTIFY` of fcntl(2): the kernel signals what happens in a directory's shadow.

use lp_abi::linux::{__NR_fcntl, DN_MULTISHOT, F_NOTIFY};
use lp_abi::{Errno, Fd, Result};
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_vfs::pin;
use lp_vfs::task::Task;
use lp_vfs::walk::Found;

use crate::high::fd::descriptor;
use crate::high::watch::{shadow_fd, shadow_make, signalled};

/// `F_NOTIFY`.
///
/// # Errors
/// `ENOTDIR`; `ENOSPC` if the directory cannot get a shadow; those of fcntl(2).
pub(crate) fn set(task: &'static Task<'static>, fd: Fd, events: u32) -> Result<usize> {
    let held = task.fget_any(fd)?;
    let ends = events & !DN_MULTISHOT == 0;
    if !ends && held.file.mode.load(Ordering::Relaxed) & file_mode::DIR == 0 {
        return Err(Errno::ENOTDIR);
    }
    let shadow = shadow_fd::of(task, descriptor::word(task, fd));
    let shadow = match shadow {
        None if ends => return Ok(0),
        // The directory may have got its shadow without its entries.
        _ if !ends => {
            let found = Found::of(&held);
            let flags = held.file.flags.load(Ordering::Relaxed); // Relaxed: one word, as seen.
            let pin = pin::hold_known(task, pin::slot::WALK, found.inode.id);
            drop(held);
            let given = shadow_make::give(task, &found, 0);
            drop(pin);
            // A removed directory has no events.
            if given == Err(Errno::ESTALE) {
                return Ok(0);
            }
            given?;
            if shadow.is_none() {
                shadow_fd::open(task, fd, flags);
            }
            signalled::own(task, fd)?;
            signalled::copy(task, fd);
            shadow_fd::of(task, descriptor::word(task, fd)).ok_or(Errno::ENOSPC)?
        }
        Some(shadow) => shadow,
        None => return Err(Errno::ENOSPC),
    };
    // SAFETY: no pointer is passed.
    unsafe { lp_abi::syscall!(__NR_fcntl, shadow, F_NOTIFY, events) }
}
