//! Signal masks and contexts, and the program's signal actions.

use core::sync::atomic::Ordering;

use lp_abi::linux::{
    __NR_rt_sigaction, __NR_rt_sigprocmask, SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_RESTORER,
    SA_SIGINFO, SIG_BLOCK, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP,
};

use crate::low::above::Access;
use crate::low::thread::actions::{Action, Actions, DEFAULT, KernelAction};
use crate::low::thread::{current, home};

/// The signal actions that apply to the calling thread.
pub(crate) fn actions() -> &'static Actions {
    let current = current::thread();
    // SAFETY: a record that was `current` stays valid, and so do its actions; the home is mapped and consists
    // of atomics.
    unsafe { if current.is_null() { &*home::actions() } else { &*(*current).actions.get() } }
}

/// Offsets in the kernel's `struct ucontext` on x86-64.
mod context {
    /// rdi, rsi, rdx, r10, r8, r9.
    pub(super) const ARGUMENTS: [usize; 6] = [40 + 8 * 8, 40 + 9 * 8, 40 + 12 * 8, 40 + 2 * 8, 40, 40 + 8];
    pub(super) const RBP: usize = 40 + 10 * 8;
    pub(super) const RAX: usize = 40 + 13 * 8;
    pub(super) const RSP: usize = 40 + 15 * 8;
    pub(super) const RIP: usize = 40 + 16 * 8;
    pub(super) const FLAGS: usize = 40 + 17 * 8;
    pub(super) const ERROR: usize = 40 + 19 * 8;
    pub(super) const MASK: usize = 296;
}

/// The registers and the mask that a signal interrupted.
pub(crate) struct Context(pub(crate) *mut u8);

impl Context {
    fn get(&self, offset: usize) -> usize {
        // SAFETY: the kernel's frame is valid during the handler.
        unsafe { self.0.add(offset).cast::<usize>().read() }
    }

    fn set(&self, offset: usize, value: usize) {
        // SAFETY: the kernel's frame is valid during the handler.
        unsafe { self.0.add(offset).cast::<usize>().write(value) };
    }

    pub(crate) fn instruction(&self) -> usize {
        self.get(context::RIP)
    }

    /// How the instruction accessed memory: bit 1 of the processor's error code of a page fault.
    pub(crate) fn access(&self) -> Access {
        if self.get(context::ERROR) & 2 != 0 { Access::Write } else { Access::Read }
    }

    pub(crate) fn set_instruction(&self, at: usize) {
        self.set(context::RIP, at);
    }

    /// `rax`.
    pub(crate) fn result(&self) -> isize {
        self.get(context::RAX) as isize
    }

    pub(crate) fn set_result(&self, result: isize) {
        self.set(context::RAX, result as usize);
    }

    /// The registers that are a call's arguments.
    pub(crate) fn arguments(&self) -> [usize; 6] {
        context::ARGUMENTS.map(|offset| self.get(offset))
    }

    /// `rbp`.
    pub(crate) fn frame(&self) -> usize {
        self.get(context::RBP)
    }

    pub(crate) fn set_frame(&self, at: usize) {
        self.set(context::RBP, at);
    }

    /// Whether the overflow flag is set.
    pub(crate) fn overflows(&self) -> bool {
        self.get(context::FLAGS) & 1 << 11 != 0
    }

    /// `rsp`.
    pub(crate) fn stack(&self) -> usize {
        self.get(context::RSP)
    }

    /// Sets `rsp`.
    pub(crate) fn set_stack(&self, at: usize) {
        self.set(context::RSP, at);
    }

    pub(crate) fn mask(&self) -> u64 {
        self.get(context::MASK) as u64
    }

    pub(crate) fn set_mask(&self, mask: u64) {
        self.set(context::MASK, mask as usize);
    }
}

/// Signals that an instruction raises. Never blocked, because the kernel would then kill the process.
pub(crate) const SYNCHRONOUS: u64 =
    bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS);

pub(crate) const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// The program's handler of a signal, which is about to run. A handler with SA_RESETHAND runs once: of two
/// threads that get the signal at the same time, one gets the handler.
pub(crate) fn take_handler(signal: usize) -> Option<usize> {
    let action = actions().of(signal)?;
    let program = action.get();
    if !program.is_handled() {
        return None;
    }
    if program.flags & u64::from(SA_RESETHAND) != 0 {
        // Relaxed, both: the word stands alone.
        action
            .handler
            .compare_exchange(program.handler, DEFAULT, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        if !is_fault(signal) {
            set_kernels(signal, action, &KernelAction { handler: DEFAULT, ..program });
        }
    }
    Some(program.handler)
}

/// The signals that the gate handles whatever the program does: SIGSEGV and SIGBUS, and SIGSYS where it
/// stands for calls.
pub(crate) fn faults() -> impl Iterator<Item = usize> {
    let traps = if home::traps() { Some(SIGSYS) } else { None };
    [SIGSEGV, SIGBUS].into_iter().chain(traps).map(|signal| signal as usize)
}

/// Whether a signal is one of [`faults`].
pub(crate) fn is_fault(signal: usize) -> bool {
    faults().any(|fault| fault == signal)
}

unsafe extern "C" {
    static lp_signal: u8;
    static __restore_rt: u8;
}

/// The handler that the kernel gets for every signal that the program handles.
pub(crate) fn lp_signal_address() -> usize {
    &raw const lp_signal as usize
}

/// Where a handler of the gate's returns to.
pub(crate) fn restorer() -> usize {
    &raw const __restore_rt as usize
}

/// In a child whose handlers the kernel has cleared (CLONE_CLEAR_SIGHAND).
#[cold]
pub(crate) fn clear() {
    actions().clear();
    // A limited process makes the program's own calls only.
    if !lp_abi::sys::is_limited() {
        for signal in faults() {
            let _ = kernel_action(signal, Some(&fault_action()), None);
        }
    }
}

/// The kernel's action for the signals of faults, unless the program handles them.
pub(crate) fn fault_action() -> KernelAction {
    KernelAction {
        handler: lp_signal_address(),
        flags: u64::from(SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTORER),
        restorer: restorer(),
        mask: 0,
    }
}

/// Gives the kernel an action without a handler.
pub(crate) fn set_kernels(signal: usize, action: &Action, to: &KernelAction) {
    let change = action.begin();
    let _ = kernel_action(signal, Some(to), None);
    action.changed(change, false);
}

/// The kernel's rt_sigaction(2).
pub(crate) fn kernel_action(
    signal: usize,
    new: Option<&KernelAction>,
    old: Option<&mut KernelAction>,
) -> lp_abi::Result<usize> {
    let new = new.map_or(core::ptr::null(), |action| action as *const KernelAction);
    let old = old.map_or(core::ptr::null_mut(), |action| action as *mut KernelAction);
    // SAFETY: the kernel reads and writes the records; every handler installed is `lp_signal` or the
    // program's.
    unsafe { lp_abi::syscall!(__NR_rt_sigaction, signal, new, old, 8) }
}

/// Whether the program's handler of a signal has SA_RESTART.
pub(crate) fn restarts(signal: usize) -> bool {
    actions().of(signal).is_some_and(|action| action.get().flags & u64::from(SA_RESTART) != 0)
}

/// The signals by which C libraries cancel threads: glibc's, and musl's, by which glibc changes the
/// identity of all threads.
pub(crate) const CANCEL: [usize; 2] = [32, 33];

/// Whether a signal cancels a thread. musl's handler blocks all signals, glibc's for the identity none.
pub(crate) fn cancels(signal: usize) -> bool {
    let blocks = || actions().of(signal).is_some_and(|action| action.get().mask != 0);
    signal == CANCEL[0] || signal == CANCEL[1] && blocks()
}

/// The thread's signal mask.
pub(crate) fn mask() -> u64 {
    set_mask(SIG_BLOCK, 0)
}

/// rt_sigprocmask(2); returns the previous mask.
pub(crate) fn set_mask(how: u32, mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: the kernel reads one word and writes one.
    let _ = unsafe { lp_abi::syscall!(__NR_rt_sigprocmask, how, &raw const mask, &raw mut before, 8) };
    before
}
