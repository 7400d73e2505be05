//! What is known of the signals of a thread that wait for the end of a call.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::low::thread::actions::SIGNALS;

/// The kernel's siginfo.
pub(crate) type Info = [u64; 16];

/// The signals of a thread that wait. Handlers that interrupt each other change it.
#[repr(C)]
pub(crate) struct Deferred {
    /// Those whose handlers wait for the end of the call.
    pub(crate) waiting: AtomicU64,
    /// Those of which a token is in the kernel's queue.
    pub(crate) sent: AtomicU64,
    /// What the masks to go back to have in common.
    pub(crate) mask: AtomicU64,
    /// The mask of the call that a signal has ended, if it had one of its own; see [`ended_under`].
    pub(crate) wait_mask: Cell<Option<u64>>,
}

/// The siginfo of each signal in [`Deferred::waiting`] and [`Deferred::sent`]. Touched only where it is used.
#[repr(C)]
pub(crate) struct Notes(pub(crate) [UnsafeCell<MaybeUninit<Info>>; SIGNALS]);

// Relaxed throughout: the words are the thread's own, and atomic for the handlers that interrupt it.
impl Deferred {
    /// Nothing waits.
    pub(crate) fn reset(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
        self.mask.store(u64::MAX, Ordering::Relaxed);
        self.wait_mask.set(None);
    }
}
