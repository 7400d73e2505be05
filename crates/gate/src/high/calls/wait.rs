//! wait4(2), waitid(2): a parent that learns of a child's death finds everything that the child held or had
//! begun settled. Linux does the same: a killed process's calls end before its parent is told.
//!
//! A process with one thread makes the kernel's call here. One with several makes it at its site, where a
//! cancelled thread unwinds; the next reaper then releases what its children left.

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
        // SAFETY: the copy routine handles bad pointers. The fourth word of a child's siginfo_t is its id.
        if let (0, Ok(words)) = (done, unsafe { ucopy::get(info as *const [u32; 4]) }) {
            reap::child(task, words[3]);
        }
        done
    }
}

fn has_threads(task: &Task) -> bool {
    task.process.threads.load(Ordering::Relaxed) != 0 // Relaxed: only this thread can have created a second.
}

fn blocking(nr: u32, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own call with its own arguments.
    ret(unsafe { deferred::blocking_syscall(nr, arguments) })
}
