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

/// The part of [`Action::flags`] that has the program's flags.
const FLAGS: u64 = u32::MAX as u64;
/// Counts the changes of the kernel's action, in [`Action::flags`] above the program's.
const CHANGE: u64 = 1 << 32;
/// Bit of [`Action::flags`]: see [`Action::is_installed`].
const INSTALLED: u64 = 1 << 63;
/// Flags that the kernel does not get as they are: the gate implements the first, and always sets the second.
const UNSEEN: u64 = (SA_RESETHAND | SA_SIGINFO) as u64;

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
/// Threads that change one signal's action at the same time get one or the other, as with the kernel, or a
/// mixture of flags and handler until the next change, for which nobody then takes the kernel's action for
/// known ([`Action::is_installed`]).
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
            to.changed(to.begin(), from.is_installed());
        }
    }

    /// Forgets all handlers, as the kernel has.
    pub(crate) fn clear(&self) {
        for action in &self.0 {
            let handler = if action.get().handler == IGNORE { IGNORE } else { DEFAULT };
            action.begin();
            action.set(&KernelAction { handler, ..KernelAction::default() });
        }
    }
}

// Relaxed throughout: each word stands alone, and the kernel's call in between orders it with the delivery.
impl Action {
    pub(crate) fn get(&self) -> KernelAction {
        self.with(self.flags.load(Ordering::Relaxed))
    }

    fn with(&self, flags: u64) -> KernelAction {
        KernelAction {
            handler: self.handler.load(Ordering::Relaxed),
            flags: flags & FLAGS,
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    /// Changes the action. Between [`Self::begin`] and [`Self::changed`] if others may, too.
    pub(crate) fn set(&self, action: &KernelAction) {
        self.update(|word| word & !FLAGS | action.flags);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Relaxed);
    }

    /// Whether the kernel is known to have `lp_signal` for the signal, with the flags and the mask that are
    /// here.
    pub(crate) fn is_installed(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & INSTALLED != 0
    }

    /// Changes the action to one with a handler if the kernel has what it would get for that. Returns the
    /// former one.
    pub(crate) fn replace(&self, new: &KernelAction) -> Option<KernelAction> {
        let word = self.flags.load(Ordering::Relaxed);
        let before = self.with(word);
        let is_same = word & INSTALLED != 0
            && (before.flags ^ new.flags) & !UNSEEN == 0
            && (before.mask, before.restorer) == (new.mask, new.restorer);
        let changed = word & !FLAGS | new.flags;
        // It fails if somebody has begun to change the kernel's action since.
        if !is_same
            || self.flags.compare_exchange(word, changed, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return None;
        }
        self.handler.store(new.handler, Ordering::Relaxed);
        Some(before)
    }

    /// Before the kernel's action is changed. Returns the number of the change.
    pub(crate) fn begin(&self) -> u64 {
        number(next(self.update(next)))
    }

    /// After the kernel's action was changed, and with it whether it is `lp_signal` with the flags and the
    /// mask that are here. If others have begun to change it meanwhile, nobody knows whose change came last.
    pub(crate) fn changed(&self, change: u64, is_installed: bool) {
        self.update(|word| match is_installed && number(word) == change {
            true => word | INSTALLED,
            false => next(word),
        });
    }

    /// Returns the word as it was before.
    fn update(&self, to: impl Fn(u64) -> u64) -> u64 {
        let mut word = self.flags.load(Ordering::Relaxed);
        while let Err(now) =
            self.flags.compare_exchange_weak(word, to(word), Ordering::Relaxed, Ordering::Relaxed)
        {
            word = now;
        }
        word
    }
}

/// The number of the last change that has begun.
fn number(word: u64) -> u64 {
    word & !(FLAGS | INSTALLED)
}

/// The word with the next number, by which the kernel's action is not known.
fn next(word: u64) -> u64 {
    word & FLAGS | word.wrapping_add(CHANGE) & !(FLAGS | INSTALLED)
}
