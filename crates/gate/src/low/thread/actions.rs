//! Signal actions as the program sees them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Signals of Linux: 1 to 64.
pub(crate) const SIGNALS: usize = 64;

/// The kernel's `struct sigaction` on x86-64.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct KernelAction {
    pub(crate) handler: usize,
    pub(crate) flags: u64,
    pub(crate) restorer: usize,
    pub(crate) mask: u64,
}

/// The program's view of signal actions; the kernel's action of these signals is `lp_signal`. Private to the
/// process.
///
/// Threads that change one signal's action at the same time get one or the other, as with the kernel, or
/// during the call a mixture of flags and handler.
#[repr(C)]
pub(crate) struct Actions(pub(crate) [Action; SIGNALS]);

#[repr(C)]
pub(crate) struct Action {
    pub(crate) handler: AtomicUsize,
    pub(crate) flags: AtomicU64,
    pub(crate) restorer: AtomicUsize,
    pub(crate) mask: AtomicU64,
}

impl Actions {
    pub(crate) fn of(&self, signal: usize) -> Option<&Action> {
        self.0.get(signal.wrapping_sub(1))
    }

    /// Becomes a copy of `other`.
    pub(crate) fn copy(&self, other: &Actions) {
        for (to, from) in self.0.iter().zip(&other.0) {
            to.set(&from.get());
        }
    }
}

// Relaxed throughout: each word stands alone, and the kernel's call in between orders it with the delivery.
impl Action {
    pub(crate) fn get(&self) -> KernelAction {
        KernelAction {
            handler: self.handler.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set(&self, action: &KernelAction) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Relaxed);
    }
}
