//! Signals about files of ours: the kernel sends them for a file's shadow, to the owner of the file.

use lp_abi::linux::{
    __NR_fcntl, F_OWNER_PID, F_SETOWN_EX, F_SETSIG, SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP,
};
use lp_abi::{Fd, Result};
use lp_vfs::signal_target::{self, Target};
use lp_vfs::table::entry;
use lp_vfs::task::Task;

use crate::high::watch::shadow_fd;

/// Signals whose siginfo has something else where others have the descriptor (`sig_specific_sicodes`).
const SPECIFIC: [u32; 7] = [SIGBUS, SIGCHLD, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP];
/// The values of `si_code` that come with a descriptor: `POLL_IN` to `POLL_HUP`.
const WITH_DESCRIPTOR: core::ops::RangeInclusive<i32> = 1..=6;

/// Gives the shadow of a file the file's owner and signal, as F_SETOWN and F_SETSIG have set them.
pub(crate) fn copy(task: &Task, fd: Fd) {
    let Some(shadow) = shadow_fd::of(task, task.table.load(fd)) else { return };
    let Ok(held) = task.fget_any(fd) else { return };
    let target = signal_target::get(task, &held);
    let owner = [target.kind, target.id];
    // SAFETY: the kernel reads the owner.
    let _ = unsafe { lp_abi::syscall!(__NR_fcntl, shadow, F_SETOWN_EX, owner.as_ptr()) };
    // SAFETY: no pointer is passed.
    let _ = unsafe { lp_abi::syscall!(__NR_fcntl, shadow, F_SETSIG, target.signal) };
}

/// Makes the calling process the owner of a file that has none, as `lease_setup` and `fcntl_dirnotify` do.
///
/// # Errors
/// `EBADF`, `ENOLCK`.
pub(crate) fn own(task: &Task, fd: Fd) -> Result<()> {
    let held = task.fget_any(fd)?;
    let target = signal_target::get(task, &held);
    if target.id != 0 {
        return Ok(());
    }
    // SAFETY: getpid(2) takes no pointers.
    let id = unsafe { lp_abi::syscall!(lp_abi::linux::__NR_getpid) }.unwrap_or(0) as u32;
    signal_target::set(task, &held, Target { kind: F_OWNER_PID, id, ..target })
}

/// Puts the descriptor of the file where a signal's siginfo names that of its shadow.
pub(crate) fn translate(task: &Task, signal: u32, info: &mut [u64; 16]) {
    let fd = Fd::new(info[3] as i32);
    if SPECIFIC.contains(&signal)
        || !WITH_DESCRIPTOR.contains(&(info[1] as i32))
        || task.table.load(fd) & entry::SHADOW == 0
    {
        return;
    }
    let named = task.table.open().find(|(_, word)| entry::shadow(*word) == Some(fd));
    if let Some((own, _)) = named {
        info[3] = info[3] & !0xffff_ffff | u64::from(own.raw() as u32);
    }
}
