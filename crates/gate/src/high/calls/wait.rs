//! wait4(2), waitid(2): whoever learns that a child is gone finds everything that it held or had begun
//! settled, as on Linux, where the calls of a killed process end before its parent is told.
//!
//! [`crate::low::live::wait`] makes the kernel's call. A process that has not met a mount joins the run for
//! the sake of a child that was killed: others may learn of the death from it.

use lp_abi::Errno;
use lp_abi::linux::__NR_waitid;
use lp_region::ucopy;
use lp_vfs::{reap, reclaim};

use crate::high::life::join;
use crate::low::thread::record::Thread;

/// `CLD_KILLED` and `CLD_DUMPED` of asm-generic/siginfo.h.
const KILLED: [u32; 2] = [2, 3];

/// Which child a wait has told of.
#[derive(Clone, Copy)]
enum Told {
    Of {
        pid: u32,
        may_be_killed: bool,
    },
    /// The program did not ask, or cannot be told.
    Any,
}

/// Settles what the child has left of which call `number` has told with `result`.
pub(crate) fn settle(thread: &Thread, number: u32, arguments: [usize; 6], result: isize) {
    let told = match Errno::from_ret(result) {
        Ok(_) if number == __NR_waitid => told_by_waitid(arguments[2]),
        Ok(pid) => told_by_wait4(pid as u32, arguments[1]),
        Err(Errno::EFAULT) => Some(Told::Any),
        Err(_) => None,
    };
    let Some(told) = told else { return };
    if let Told::Any | Told::Of { may_be_killed: true, .. } = told {
        join::join_if_possible(thread);
    }
    // SAFETY: null, or the thread's own task.
    let Some(task) = (unsafe { thread.task.get().as_ref() }) else { return };
    match told {
        Told::Of { pid, .. } => reap::child(task, pid),
        Told::Any => _ = reclaim::dead(task),
    }
}

// The kernel has just written what is read here. Null is asked about first: a program that has blocked
// SIGSEGV, as posix_spawn(3) does, dies of a fault.

fn told_by_wait4(pid: u32, status: usize) -> Option<Told> {
    let may_be_killed = match (pid, status) {
        (0, _) => return None,
        (_, 0) => true,
        (_, at) => {
            // SAFETY: the copy routine answers bad pointers.
            let status = unsafe { ucopy::get(at as *const u32) };
            status.map_or(true, |status| !matches!(status & 0x7f, 0 | 0x7f))
        }
    };
    Some(Told::Of { pid, may_be_killed })
}

fn told_by_waitid(info: usize) -> Option<Told> {
    if info == 0 {
        return Some(Told::Any);
    }
    // SAFETY: the copy routine answers bad pointers.
    match unsafe { ucopy::get(info as *const [u32; 5]) } {
        Ok([_, _, _, _, 0]) => None,
        Ok([_, _, code, _, pid]) => Some(Told::Of { pid, may_be_killed: KILLED.contains(&code) }),
        Err(_) => Some(Told::Any),
    }
}
