//! rt_sigprocmask(2).

use lp_abi::linux::{__NR_rt_sigprocmask, SIG_UNBLOCK};
use lp_region::ucopy;

use crate::high::frame::handler::{handlers, kernel};
use crate::high::memory::bus;
use crate::low::dispatch::NOT_OURS;
use crate::low::live::{deferred, trap};

handlers! {
    /// rt_sigprocmask(2): the signal that large holes raise is not blocked while there are some, nor that of
    /// trapped calls.
    fn rt_sigprocmask(task, how: u32, new: *const u64, old: usize, size: usize) {
        if new.is_null() || how == SIG_UNBLOCK || size != size_of::<u64>() {
            return NOT_OURS;
        }
        // SAFETY: the copy routine handles bad pointers.
        let Ok(mask) = (unsafe { ucopy::get(new) }) else { return NOT_OURS };
        let (faults, traps) = (bus::faults(mask), trap::kept_open(mask));
        if faults | traps == 0 {
            return NOT_OURS;
        }
        let blocked = if bus::exist() { 0 } else { faults };
        let set = mask & !faults & !traps | blocked;
        let words = [how as usize, &raw const set as usize, old, size, 0, 0];
        // SAFETY: the program's own call; the mask is this function's.
        // It is not made while a signal waits for the end of the call: the thread's mask is the gate's then.
        let done = unsafe { deferred::programs_syscall(__NR_rt_sigprocmask, words) };
        // Another thread may have mapped a hole meanwhile, without seeing that this one blocks the signal.
        if done == 0 && blocked != 0 && bus::exist() {
            kernel!(__NR_rt_sigprocmask, SIG_UNBLOCK, &raw const faults, 0, size);
        }
        done
    }
}
