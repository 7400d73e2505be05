//! State of a thread's deferred signals.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::low::thread::actions::SIGNALS;

/// The kernel's siginfo.
pub(crate) type Info = [u64; 16];

/// A thread's deferred signals. Signal handlers that interrupt each other change it.
#[repr(C)]
pub(crate) struct Deferred {
    /// Signals whose handlers wait for the end of the call.
    pub(crate) waiting: AtomicU64,
    /// Signals of which a token is in the kernel's queue.
    pub(crate) sent: AtomicU64,
    /// The intersection of the masks to restore.
    pub(crate) mask: AtomicU64,
    /// The mask of the call that a signal ended, if that call had its own; see [`ended_under`].
    pub(crate) wait_mask: Cell<Option<u64>>,
}

/// The siginfo of each signal in [`Deferred::waiting`] and [`Deferred::sent`]. Its pages are touched only
/// when used.
#[repr(C)]
pub(crate) struct Notes(pub(crate) [UnsafeCell<MaybeUninit<Info>>; SIGNALS]);

// Relaxed throughout: the words are the thread's own, and atomic for the signal handlers that interrupt it.
impl Deferred {
    /// Clears the state: no signal waits.
    pub(crate) fn reset(&self) {
        self.waiting.store(0, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
        self.mask.store(u64::MAX, Ordering::Relaxed);
        self.wait_mask.set(None);
    }
}
