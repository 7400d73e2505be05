//! The first call of a thread: it gets its record.

use lp_abi::linux::SIG_SETMASK;

use crate::High;
use crate::low::above::Above;
use crate::low::live::signal;
use crate::low::thread::{current, pool};
use crate::low::tools::report;

/// Makes a record for the calling thread, which has none.
///
/// A signal handler may get there first: signals are blocked while it is made.
#[cold]
pub(crate) extern "sysv64" fn start_slow() {
    let before = signal::set_mask(SIG_SETMASK, u64::MAX);
    if current::thread().is_null() && !pool::restore_first() {
        let Some(thread) = pool::take() else {
            report::refuse(&[b"no memory for a thread's record"]);
        };
        // In a limited process no signal is blocked, and a handler may have been here meanwhile.
        if !current::thread().is_null() {
            return pool::give_back(thread);
        }
        current::enter(thread);
        // SAFETY: the record is this thread's, and current.
        High::thread_start(unsafe { &*thread });
    }
    signal::set_mask(SIG_SETMASK, before);
}
