//! wait4(2), waitid(2): whoever learns that a child is gone finds everything that it held or had begun
//! settled, as on Linux, where the calls of a killed process end before its parent is told.
//!
//! [`crate::low::live::wait`] makes the kernel's call.

use lp_abi::linux::__NR_waitid;
use lp_region::ucopy;
use lp_vfs::reap;
use lp_vfs::task::Task;

/// Settles what the child has left that call `number` told of with `result`.
pub(crate) fn settle(task: &Task, number: u32, arguments: [usize; 6], result: usize) {
    if number != __NR_waitid {
        return child(task, result as u32);
    }
    let info = arguments[2];
    if info == 0 {
        // It may be any of them.
        reap::dead(task);
        return;
    }
    // SAFETY: the copy routine answers bad pointers. The siginfo_t of a child has its id in the fourth word.
    if let Ok(words) = unsafe { ucopy::get(info as *const [u32; 4]) } {
        child(task, words[3]);
    }
}

/// Settles what child `pid` has left; 0 is nobody's.
fn child(task: &Task, pid: u32) {
    if pid != 0 {
        reap::child(task, pid);
    }
}
