//! Signal actions as the program sees them.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lp_abi::linux::{
    SA_EXPOSE_TAGBITS, SA_NOCLDSTOP, SA_NOCLDWAIT, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART,
    SA_RESTORER, SA_SIGINFO, SIGKILL, SIGSTOP,
};

/// `SIG_DFL`.
pub(crate) const DEFAULT: usize = 0;

/// `SIG_IGN`.
pub(crate) const IGNORE: usize = 1;

/// Signals of Linux: 1 to 64.
pub(crate) const SIGNALS: usize = 64;

/// The kernel's `struct sigaction` on x86-64.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KernelAction {
    pub(crate) handler: usize,
    pub(crate) flags: u64,
    pub(crate) restorer: usize,
    pub(crate) mask: u64,
}

impl KernelAction {
    /// Whether signals run a handler.
    pub(crate) fn is_handled(&self) -> bool {
        self.handler != DEFAULT && self.handler != IGNORE
    }

    /// What the kernel keeps of it: flags that it knows, and no signal in the mask that cannot be blocked
    /// (do_sigaction in kernel/signal.c). Programs learn by that which flags there are.
    pub(crate) fn kept(self) -> KernelAction {
        KernelAction { flags: self.flags & KNOWN, mask: self.mask & !FIXED, ..self }
    }
}

/// Signals that cannot be blocked.
const FIXED: u64 = 1 << (SIGKILL - 1) | 1 << (SIGSTOP - 1);

/// Bit of [`Action::flags`], above those that there are: see [`Action::is_installed`].
const INSTALLED: u64 = 1 << 63;

/// The flags that Linux knows on x86-64.
const KNOWN: u64 = (SA_NOCLDSTOP
    | SA_NOCLDWAIT
    | SA_SIGINFO
    | SA_EXPOSE_TAGBITS
    | SA_RESTORER
    | SA_ONSTACK
    | SA_RESTART
    | SA_NODEFER
    | SA_RESETHAND) as u64;

/// The program's view of signal actions; the kernel's action of these signals is `lp_signal`. Private to the
/// process.
///
/// Threads that change one signal's action at the same time get one or the other, as with the kernel, or
/// during the call a mixture of flags and handler.
#[repr(C)]
pub(crate) struct Actions([Action; SIGNALS]);

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
            to.set_installed(from.is_installed());
        }
    }

    /// Forgets all handlers, as the kernel has.
    pub(crate) fn clear(&self) {
        for action in &self.0 {
            let handler = if action.get().handler == IGNORE { IGNORE } else { DEFAULT };
            action.set(&KernelAction { handler, ..KernelAction::default() });
            action.set_installed(false);
        }
    }
}

// Relaxed throughout: each word stands alone, and the kernel's call in between orders it with the delivery.
impl Action {
    pub(crate) fn get(&self) -> KernelAction {
        KernelAction {
            handler: self.handler.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed) & !INSTALLED,
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set(&self, action: &KernelAction) {
        let installed = self.flags.load(Ordering::Relaxed) & INSTALLED;
        self.flags.store(action.flags | installed, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Relaxed);
    }
    /// Whether the kernel has `lp_signal` for the signal, with the flags and the mask that are here.
    pub(crate) fn is_installed(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & INSTALLED != 0
    }

    /// Records whether it has.
    pub(crate) fn set_installed(&self, is: bool) {
        let flags = self.flags.load(Ordering::Relaxed) & !INSTALLED;
        self.flags.store(flags | if is { INSTALLED } else { 0 }, Ordering::Relaxed);
    }
}
