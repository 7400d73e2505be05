//! fcntl(2): `F_SETOWN`, `F_SETOWN_EX`, `F_SETSIG` and their counterparts. They are kept beside the open
//! file; leases and `F_NOTIFY` use them ([`crate::high::watch::signalled`]).

use lp_abi::linux::{
    __NR_kill, F_GETOWN, F_GETOWN_EX, F_GETSIG, F_OWNER_PGRP, F_OWNER_PID, F_OWNER_TID, F_SETOWN, F_SETOWN_EX,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::ucopy;
use lp_vfs::signal_target::{self, Target};
use lp_vfs::task::Task;

use crate::high::frame::handler::{failed_with, kernel};

/// Highest signal.
const MOST: u32 = 64;

/// One of these commands on a file of ours.
///
/// # Errors
/// `EBADF`, `EFAULT`; `EINVAL` for an unknown signal or kind of owner; `ESRCH` for an owner that does not
/// exist; `ENOLCK`.
pub(crate) fn fcntl(task: &Task, fd: Fd, command: u32, argument: usize) -> Result<usize> {
    let held = task.fget_any(fd)?;
    let target = signal_target::get(task, &held);
    let own = |kind, id| signal_target::set(task, &held, Target { kind, id, ..target }).map(|()| 0);
    match command {
        F_GETSIG => Ok(target.signal as usize),
        F_GETOWN => Ok(match target.kind {
            F_OWNER_PGRP => (id_of(target) as isize).wrapping_neg() as usize,
            _ => id_of(target) as usize,
        }),
        F_GETOWN_EX => {
            // SAFETY: the copy routine handles bad pointers.
            unsafe { ucopy::put(argument as *mut [u32; 2], &[target.kind, id_of(target)]) }.map(|()| 0)
        }
        F_SETOWN => match argument as i32 {
            i32::MIN => Err(Errno::EINVAL),
            group @ ..0 => own(F_OWNER_PGRP, existing(group.unsigned_abs())?),
            process => own(F_OWNER_PID, existing(process as u32)?),
        },
        F_SETOWN_EX => {
            // SAFETY: the copy routine handles bad pointers.
            let [kind, id] = unsafe { ucopy::get(argument as *const [u32; 2]) }?;
            match kind {
                F_OWNER_TID | F_OWNER_PID | F_OWNER_PGRP => own(kind, existing(id)?),
                _ => Err(Errno::EINVAL),
            }
        }
        // The kernel takes it as an int.
        _ if argument as u32 > MOST => Err(Errno::EINVAL),
        _ => signal_target::set(task, &held, Target { signal: argument as u32, ..target }).map(|()| 0),
    }
}

/// An id that a process, thread or group has; 0 is none.
fn existing(id: u32) -> Result<u32> {
    let lives = |id: isize| !failed_with(kernel!(__NR_kill, id, 0), Errno::ESRCH);
    let id = id as i32 as isize;
    let found = id == 0 || id > 0 && (lives(id) || lives(-id));
    if found { Ok(id as u32) } else { Err(Errno::ESRCH) }
}

/// The target's id; 0 if it is gone.
fn id_of(target: Target) -> u32 {
    let id = target.id as isize;
    let who = if target.kind == F_OWNER_PGRP { -id } else { id };
    if failed_with(kernel!(__NR_kill, who, 0), Errno::ESRCH) { 0 } else { target.id }
}
