//! A thread's first call: creates its record.

use lp_abi::linux::SIG_SETMASK;

use crate::High;
use crate::low::above::Above;
use crate::low::live::signal;
use crate::low::thread::{current, lend, pool};
use crate::low::tools::report;

/// Creates a record for the calling thread, which has none. Returns whether it must not have one now, because
/// its words are lent: the kernel answers the call. `stack` is on the program's stack.
///
/// Blocks signals meanwhile, because a signal handler might make the first call.
#[cold]
pub(crate) extern "sysv64" fn start_slow(stack: usize) -> bool {
    if lend::is_lent() {
        return true;
    }
    let before = signal::set_mask(SIG_SETMASK, u64::MAX);
    if current::thread().is_null() && !pool::restore_first() {
        let Some(thread) = pool::take() else {
            report::refuse(&[b"no memory for a thread's record"]);
        };
        // A limited process cannot block signals, so a handler may have created the record meanwhile.
        if !current::thread().is_null() {
            pool::give_back(thread);
            return false;
        }
        current::enter(thread);
        // SAFETY: the record is this thread's own, and `current`.
        High::thread_start(unsafe { &*thread }, stack);
    }
    signal::set_mask(SIG_SETMASK, before);
    false
}
