//! Signals: handlers of the program never run while their thread is in the gate.
//!
//! A handler may make file calls of its own, or leave by longjmp: both must not happen in the middle of a call. So
//! rt_sigaction(2) is answered here. The kernel is given `lp_signal` as the handler of every signal that the program
//! handles, with the program's own flags and mask. It jumps to the program's handler with the stack as the kernel made
//! it, so that unwinders, debuggers and pthread_cancel(3) see what they expect. If the thread is in the gate, it instead
//! keeps the siginfo, blocks everything in the context that it returns to, and at the end of the call [`deliver`] sends
//! the signal to the thread once more and restores the mask: the kernel then delivers it as if it had just come.
//!
//! A call that waits does so in [`blocking_syscall`], which a signal ends with `EINTR`.
//!
//! SIGSEGV and SIGBUS are always `lp_signal`'s: a fault in [`lp_region::ucopy`] is a bad pointer of the program's, and
//! continues at the routine's exit for faults. The program does not see the difference: [`Actions`] keeps its view.

use core::arch::global_asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lp_abi::Errno;
use lp_abi::linux::{
    __NR_getpid, __NR_rt_sigaction, __NR_rt_sigprocmask, __NR_rt_tgsigqueueinfo, SA_NODEFER, SA_ONSTACK,
    SA_RESETHAND, SA_RESTART, SA_RESTORER, SA_SIGINFO, SIG_SETMASK, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV,
    SIGSTOP, SIGSYS, SIGTRAP,
};
use lp_region::ucopy;

use crate::dispatch::{AGAIN, NOT_OURS, RESTART, SHARE_MEMORY};
use crate::home::home;
use crate::{entry, entry_quick, hooks, tls};

/// Signals of Linux: 1 to 64.
const SIGNALS: usize = 64;
const DEFAULT: usize = 0;
const IGNORE: usize = 1;

/// The kernel's `struct sigaction` on x86-64.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// The program's view of the actions of signals, for those that the kernel knows as `lp_signal`. Private to the process.
///
/// Threads of a process that change the same signal's action at once get one or the other, as with the kernel, or for
/// the length of the call a mixture of flags and handler.
#[repr(C)]
pub struct Actions([Action; SIGNALS]);

#[repr(C)]
struct Action {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

/// A signal that waits for the end of a call.
#[repr(C)]
pub(crate) struct Deferred {
    /// Its siginfo.
    info: MaybeUninit<[u64; 16]>,
    /// The mask to go back to.
    mask: u64,
    signal: u32,
}

impl Actions {
    fn of(&self, signal: usize) -> Option<&Action> {
        self.0.get(signal.wrapping_sub(1))
    }

    /// Becomes a copy of `other`.
    pub(crate) fn copy(&self, other: &Actions) {
        for (to, from) in self.0.iter().zip(&other.0) {
            to.set(&from.get());
        }
    }
}

// Relaxed throughout: each word stands for itself, and the kernel's call between orders them with the delivery.
impl Action {
    fn get(&self) -> KernelAction {
        KernelAction {
            handler: self.handler.load(Ordering::Relaxed),
            flags: self.flags.load(Ordering::Relaxed),
            restorer: self.restorer.load(Ordering::Relaxed),
            mask: self.mask.load(Ordering::Relaxed),
        }
    }

    fn set(&self, action: &KernelAction) {
        self.flags.store(action.flags, Ordering::Relaxed);
        self.restorer.store(action.restorer, Ordering::Relaxed);
        self.mask.store(action.mask, Ordering::Relaxed);
        self.handler.store(action.handler, Ordering::Relaxed);
    }
}

/// The actions of the process itself.
pub(crate) fn process_actions() -> *const Actions {
    // SAFETY: an address in the process's home.
    unsafe { &raw const (*home()).actions }
}

fn actions() -> &'static Actions {
    let current = tls::current();
    // SAFETY: a record, once current, stays valid, and so do its actions; the home is mapped and made of atomics.
    unsafe { if current.is_null() { &*process_actions() } else { &*(*current).actions } }
}

global_asm!(
    ".pushsection .text.lp_signal,\"ax\",@progbits",
    ".globl lp_signal, lp_restorer, lp_block, lp_block_start, lp_block_end, lp_block_interrupted",
    ".hidden lp_signal, lp_restorer, lp_block, lp_block_start, lp_block_end, lp_block_interrupted",
    ".balign 16",
    "lp_signal:",
    "push rdi",
    "push rsi",
    "push rdx",
    "call {route}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "test rax, rax",
    "jz 1f",
    "jmp rax",
    "1:",
    "ret",
    ".balign 16",
    "lp_restorer:",
    "mov eax, 15", // rt_sigreturn
    "syscall",
    // lp_block(rdi call, rsi its six arguments, rdx the address of the mark): a system call that a signal ends, also
    // one that arrives between the look at the mark and the kernel's call.
    ".balign 16",
    "lp_block:",
    "mov r11, rdx",
    "mov eax, edi",
    "mov rcx, rsi",
    "mov rdi, [rcx]",
    "mov rsi, [rcx + 8]",
    "mov rdx, [rcx + 16]",
    "mov r10, [rcx + 24]",
    "mov r8, [rcx + 32]",
    "mov r9, [rcx + 40]",
    "lp_block_start:",
    "cmp dword ptr [r11], 0",
    "jne lp_block_interrupted",
    "syscall",
    "lp_block_end:",
    "ret",
    "lp_block_interrupted:",
    "mov rax, -4", // EINTR
    "ret",
    ".popsection",
    route = sym route,
);

unsafe extern "sysv64" {
    fn lp_block(nr: u32, arguments: *const [usize; 6], mark: *const u32) -> isize;
}

unsafe extern "C" {
    static lp_signal: u8;
    static lp_restorer: u8;
    static lp_block_start: u8;
    static lp_block_end: u8;
    static lp_block_interrupted: u8;
}

fn lp_signal_address() -> usize {
    &raw const lp_signal as usize
}

/// A system call that may wait, made in the gate on the program's behalf. A signal that the program handles ends it with
/// `EINTR`, with or without SA_RESTART: the handler of the dispatch table then returns [`RESTART`], or `EINTR` where
/// signal(7) says that the call is never restarted.
///
/// # Errors
/// The call's.
///
/// # Safety
/// As the call itself.
pub unsafe fn blocking_syscall(nr: u32, arguments: [usize; 6]) -> lp_abi::Result<usize> {
    let mark: *const u32;
    // SAFETY: computes an address in this thread's storage; the first word of a thread's block is its own address.
    unsafe {
        core::arch::asm!("mov {at}, qword ptr [rip + lp_tls@GOTTPOFF]", "add {at}, qword ptr fs:[0]",
            "add {at}, {deferred}", at = out(reg) mark, deferred = const tls::DEFERRED, options(nostack));
    }
    // SAFETY: the calling thread's own record.
    if let Some(thread) = unsafe { tls::current().as_ref() } {
        thread.crossed.set(true);
    }
    // SAFETY: the caller's promise.
    Errno::from_ret(unsafe { lp_block(nr, &raw const arguments, mark) })
}

/// Whether a signal waits for the end of this call: a call that waits without the kernel must give up with [`RESTART`].
pub fn interrupted() -> bool {
    tls::deferred() != 0
}

/// Installs the handler for faults. Called once, by attach, before the program's own code.
pub(crate) fn attach() {
    for signal in [SIGSEGV, SIGBUS] {
        let mut inherited = KernelAction::default();
        if kernel_action(signal as usize, Some(&fault_action()), Some(&mut inherited)).is_ok()
            && let Some(action) = actions().of(signal as usize)
        {
            action.set(&inherited);
        }
    }
}

/// Before an exec: a signal that the program ignores stays ignored in the new image, also if the kernel has our handler.
pub(crate) fn before_exec() {
    for signal in [SIGSEGV, SIGBUS] {
        let ignored =
            actions().of(signal as usize).map(Action::get).filter(|action| action.handler == IGNORE);
        if let Some(action) = ignored {
            let _ = kernel_action(signal as usize, Some(&action), None);
        }
    }
}

/// After an exec that failed.
pub(crate) fn exec_failed() {
    for signal in [SIGSEGV, SIGBUS] {
        let program = actions().of(signal as usize).map_or_else(KernelAction::default, Action::get);
        if program.handler == IGNORE {
            let _ = kernel_action(signal as usize, Some(&fault_action()), None);
        }
    }
}

fn fault_action() -> KernelAction {
    KernelAction {
        handler: lp_signal_address(),
        flags: u64::from(SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTORER),
        restorer: &raw const lp_restorer as usize,
        mask: 0,
    }
}

fn is_fault(signal: usize) -> bool {
    signal == SIGSEGV as usize || signal == SIGBUS as usize
}

fn kernel_action(
    signal: usize,
    new: Option<&KernelAction>,
    old: Option<&mut KernelAction>,
) -> lp_abi::Result<usize> {
    let new = new.map_or(core::ptr::null(), |action| action as *const KernelAction);
    let old = old.map_or(core::ptr::null_mut(), |action| action as *mut KernelAction);
    // SAFETY: the kernel reads and writes the records; the handlers that are installed are `lp_signal` or the program's.
    unsafe { lp_abi::syscall!(__NR_rt_sigaction, signal, new, old, 8) }
}

/// rt_sigaction(2).
pub(crate) unsafe extern "sysv64" fn rt_sigaction(
    signal: usize,
    new: usize,
    old: usize,
    size: usize,
    _: usize,
    _: usize,
) -> isize {
    let signal = signal as u32 as usize;
    let valid = (1..=SIGNALS).contains(&signal) && size == 8;
    let fixed = signal == SIGKILL as usize || signal == SIGSTOP as usize;
    if !valid || (fixed && new != 0) {
        return NOT_OURS; // The kernel has the error for it.
    }
    if stays_unhandled(signal, new as *const KernelAction) {
        return NOT_OURS;
    }
    match change(signal, new as *const KernelAction, old as *mut KernelAction) {
        Ok(()) => 0,
        Err(errno) => errno.to_ret(),
    }
}

/// Whether the program has never handled the signal, and the call leaves it so: then what the kernel knows is what the
/// program sees. posix_spawn(3) makes a hundred such calls.
fn stays_unhandled(signal: usize, new: *const KernelAction) -> bool {
    let Some(action) = actions().of(signal).filter(|_| !is_fault(signal)) else { return false };
    if action.handler.load(Ordering::Relaxed) != DEFAULT {
        return false;
    }
    // SAFETY: the copy routine answers bad pointers. The handler is the first word.
    new.is_null() || matches!(unsafe { ucopy::word(new.cast()) } as usize, DEFAULT | IGNORE)
}

fn change(signal: usize, new: *const KernelAction, old: *mut KernelAction) -> lp_abi::Result<()> {
    let program = match new.is_null() {
        true => None,
        // SAFETY: the copy routine answers bad pointers; every bit pattern is an action.
        false => Some(unsafe { ucopy::get(new) }?),
    };
    let action = actions().of(signal).ok_or(Errno::EINVAL)?;
    let before = action.get();
    let mut was = KernelAction::default();
    match program {
        None => kernel_action(signal, None, Some(&mut was))?,
        Some(program) => {
            let handled = program.handler != DEFAULT && program.handler != IGNORE;
            let kernel = match (handled, is_fault(signal)) {
                // SA_RESETHAND is carried out in `route`: a handler that is put off must still be there afterwards.
                (true, _) => KernelAction {
                    handler: lp_signal_address(),
                    flags: program.flags & !u64::from(SA_RESETHAND) | u64::from(SA_SIGINFO),
                    ..program
                },
                (false, true) => fault_action(),
                (false, false) => program,
            };
            if handled || is_fault(signal) {
                action.set(&program);
            }
            match kernel_action(signal, Some(&kernel), Some(&mut was)) {
                Ok(done) => done,
                Err(errno) => {
                    action.set(&before);
                    return Err(errno);
                }
            }
        }
    };
    if old.is_null() {
        return Ok(());
    }
    let seen = if was.handler == lp_signal_address() { before } else { was };
    // SAFETY: the copy routine answers bad pointers.
    unsafe { ucopy::put(old, &seen) }
}

/// Offsets in the kernel's `struct ucontext` on x86-64.
mod context {
    pub(super) const RIP: usize = 40 + 16 * 8;
    pub(super) const MASK: usize = 296;
}

/// The registers and the mask that a signal interrupted.
struct Context(*mut u8);

impl Context {
    fn get(&self, offset: usize) -> usize {
        // SAFETY: the kernel's frame is valid during the handler.
        unsafe { self.0.add(offset).cast::<usize>().read() }
    }

    fn set(&self, offset: usize, value: usize) {
        // SAFETY: as above.
        unsafe { self.0.add(offset).cast::<usize>().write(value) };
    }
}

/// Signals that an instruction causes: never blocked, because the kernel would then kill the process.
const SYNCHRONOUS: u64 = bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) | bit(SIGSYS);

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// Decides what becomes of a signal: the handler to jump to, or 0 to return to what was interrupted.
extern "sysv64" fn route(signal: usize, info: *const [u64; 16], context: *mut u8) -> usize {
    let context = Context(context);
    let at = context.get(context::RIP);
    // SAFETY: the kernel's siginfo is valid during the handler; si_code is its third 32-bit word.
    let by_instruction = unsafe { info.cast::<i32>().add(2).read() } > 0 && is_fault(signal);
    if by_instruction && signal == SIGBUS as usize {
        hooks::end_if_cut();
    }
    if by_instruction {
        let (start, end, fault) = ucopy::fault_range();
        if (start..end).contains(&at) {
            context.set(context::RIP, fault);
            return 0;
        }
        if entry_quick::looks().contains(&at) {
            context.set(context::RIP, &raw const entry::lp_entry as usize);
            return 0;
        }
    }
    // SAFETY: as above; si_addr is its third 64-bit word.
    if by_instruction && tls::in_gate() == 0 && hooks::fault(unsafe { info.cast::<usize>().add(2).read() }) {
        return 0;
    }
    if tls::in_gate() != 0 && !by_instruction {
        defer(signal, info, &context, at);
        return 0;
    }
    let Some(action) = actions().of(signal) else { return 0 };
    let program = action.get();
    match program.handler {
        DEFAULT => {
            end_by(signal, info, by_instruction);
            0
        }
        IGNORE if !by_instruction => 0,
        IGNORE => {
            end_by(signal, info, by_instruction);
            0
        }
        handler => {
            if program.flags & u64::from(SA_RESETHAND) != 0 {
                reset(signal, action, &program);
            }
            handler
        }
    }
}

/// A fault signal whose action is the default: the kernel's own end of the process, with its core dump and status. The
/// faulting instruction runs again; a signal that was sent is sent once more.
fn end_by(signal: usize, info: *const [u64; 16], by_instruction: bool) {
    let _ = kernel_action(signal, Some(&KernelAction::default()), None);
    if !by_instruction {
        send_self(signal, info);
    }
}

/// What SA_RESETHAND asks for on entry to the handler.
fn reset(signal: usize, action: &Action, program: &KernelAction) {
    let default = KernelAction { handler: DEFAULT, ..*program };
    if is_fault(signal) {
        action.set(&default);
    } else {
        let _ = kernel_action(signal, Some(&default), None);
    }
}

fn send_self(signal: usize, info: *const [u64; 16]) {
    // SAFETY: no effect.
    let pid = unsafe { lp_abi::syscall!(__NR_getpid) }.unwrap_or(0);
    // SAFETY: the kernel reads the siginfo; to itself a process may send any.
    let _ = unsafe { lp_abi::syscall!(__NR_rt_tgsigqueueinfo, pid, crate::thread::own_tid(), signal, info) };
}

fn defer(signal: usize, info: *const [u64; 16], context: &Context, at: usize) {
    let block = &raw const lp_block_start as usize..&raw const lp_block_end as usize;
    if block.contains(&at) {
        context.set(context::RIP, &raw const lp_block_interrupted as usize);
    }
    let current = tls::current();
    // SAFETY: in the gate current is set, and the record is this thread's own; the kernel's siginfo is valid.
    unsafe {
        let deferred = &mut (*current).deferred;
        if tls::deferred() == 0 {
            deferred.mask = context.get(context::MASK) as u64;
        }
        // Everything but faults is blocked from here to the end of the call, so that this is the only one, unless
        // somebody sends a SIGSEGV on top; then the last one counts.
        deferred.info.write(info.read());
        deferred.signal = signal as u32;
    }
    context.set(context::MASK, !SYNCHRONOUS as usize);
    tls::set_deferred(1);
}

/// At the end of a call: sends what was put off, and makes a call that it interrupted fail or happen again.
pub(crate) extern "sysv64" fn deliver(result: isize) -> isize {
    // SAFETY: in the gate current is set, and the record is this thread's own.
    let deferred = unsafe { &mut (*tls::current()).deferred };
    tls::set_deferred(0);
    let signal = deferred.signal as usize;
    let restarts = actions().of(signal).is_some_and(|action| action.get().flags & u64::from(SA_RESTART) != 0);
    let mask = deferred.mask;
    if result == SHARE_MEMORY {
        crate::process::share_undone();
    }
    send_self(signal, deferred.info.as_ptr());
    // SAFETY: the kernel reads the mask. The program's handler runs before this returns.
    let _ = unsafe { lp_abi::syscall!(__NR_rt_sigprocmask, SIG_SETMASK, &raw const mask, 0usize, 8) };
    match result {
        RESTART if restarts => AGAIN,
        SHARE_MEMORY => AGAIN,
        RESTART => Errno::EINTR.to_ret(),
        other => other,
    }
}

/// In a fork's child: a signal that waits is the parent's.
pub(crate) fn forget_deferred() {
    if tls::deferred() != 0 {
        tls::set_deferred(0);
        // SAFETY: in the gate current is set, and the record is this thread's own; the kernel reads the mask.
        let _ = unsafe {
            let mask = &raw const (*tls::current()).deferred.mask;
            lp_abi::syscall!(__NR_rt_sigprocmask, SIG_SETMASK, mask, 0usize, 8)
        };
    }
}
