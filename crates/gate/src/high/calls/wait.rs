//! wait4(2), waitid(2): whoever learns that a child is gone finds everything that it held or had begun
//! settled, as on Linux, where the calls of a killed process end before its parent is told.
//!
//! The kernel's call is made here by a process with one thread. One with several makes it at its site, where
//! a thread that is cancelled unwinds; what its children left is given back by the next reaper.

use lp_abi::linux::{__NR_wait4, __NR_waitid};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::reap;
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, ret};
use crate::low::dispatch::NOT_OURS;
use crate::low::live::deferred;

handlers! {
    /// wait4(2).
    fn wait4(task, pid: usize, status: usize, options: usize, usage: usize) {
        if has_threads(task) {
            return NOT_OURS;
        }
        let done = blocking(__NR_wait4, [pid, status, options, usage, 0, 0]);
        if done > 0 {
            reap::child(task, done as u32);
        }
        done
    }

    /// waitid(2).
    fn waitid(task, kind: usize, id: usize, info: usize, options: usize, usage: usize) {
        if has_threads(task) || info == 0 {
            return NOT_OURS;
        }
        let done = blocking(__NR_waitid, [kind, id, info, options, usage, 0]);
        // SAFETY: the copy routine answers bad pointers. The siginfo_t of a child has its id in the fourth
        // word.
        if let (0, Ok(words)) = (done, unsafe { ucopy::get(info as *const [u32; 4]) }) {
            reap::child(task, words[3]);
        }
        done
    }
}

fn has_threads(task: &Task) -> bool {
    task.process.threads.load(Ordering::Relaxed) != 0 // Relaxed: only this thread can have made a second.
}

fn blocking(nr: u32, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own call with its own arguments.
    ret(unsafe { deferred::blocking_syscall(nr, arguments) })
}
