//! Signals: no handler of the program runs while its thread is in the gate.
//!
//! A handler may make file calls of its own or leave by longjmp; neither may happen in the middle of a call.
//! Therefore rt_sigaction(2) is answered here. The kernel gets `lp_signal` as the handler of every signal
//! that the program handles, with the program's own flags and mask. `lp_signal` jumps to the program's
//! handler with the stack as the kernel made it, so that unwinders, debuggers and pthread_cancel(3) see what
//! they expect. If the thread is in the gate, the signal is deferred to the end of the call: see
//! [`crate::low::live::deferred`].
//!
//! SIGSEGV and SIGBUS always go to `lp_signal`: a fault in [`lp_region::ucopy`] is a bad pointer of the
//! program's and continues at the routine's exit for faults. The program does not see the difference, because
//! [`Actions`] keeps its view.

use core::arch::global_asm;
use core::sync::atomic::Ordering;

use lp_abi::Errno;
use lp_abi::linux::{
    __NR_exit_group, SA_RESETHAND, SA_SIGINFO, SIG_SETMASK, SIGBUS, SIGCHLD, SIGCONT, SIGKILL, SIGSTOP,
    SIGSYS, SIGURG, SIGWINCH,
};
use lp_abi::sys::syscall6;
use lp_region::ucopy;

use crate::High;
use crate::low::above::Above;
use crate::low::above::Access;
use crate::low::arrive::deliver;
use crate::low::arrive::{entry, entry_quick};
use crate::low::dispatch::NOT_OURS;
use crate::low::live::deferred;
use crate::low::live::deferred::interrupted;
use crate::low::live::first_call;
use crate::low::live::signal::{
    Context, actions, bit, fault_action, faults, is_fault, kernel_action, lp_signal_address, set_kernels,
    set_mask, take_handler,
};
use crate::low::live::trap;
use crate::low::live::wait;
use crate::low::thread::actions::{Action, DEFAULT, IGNORE, KernelAction, SIGNALS};
use crate::low::thread::pending::Info;
use crate::low::thread::tls;
use crate::low::thread::{current, home};

global_asm!(
    ".pushsection .text.lp_signal,\"ax\",@progbits",
    ".globl lp_signal, __restore_rt",
    ".hidden lp_signal, __restore_rt",
    ".balign 16",
    "lp_signal:",
    ".cfi_startproc",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "call {route}",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "test rax, rax",
    "jz 1f",
    "jmp rax",
    "1:",
    "ret",
    ".cfi_endproc",
    ".balign 16",
    "nop", // They look at the byte before a return address.
    // Unwinders know a signal's frame by this name and these bytes.
    "__restore_rt:",
    ".byte 0x48, 0xc7, 0xc0, 15, 0, 0, 0", // mov rax, 15: rt_sigreturn
    "syscall",
    ".popsection",
    route = sym route,
);

/// Installs the handler for faults. Attach calls it once, before any code of the program.
pub(crate) fn attach() {
    for signal in faults() {
        let mut inherited = KernelAction::default();
        if kernel_action(signal, Some(&fault_action()), Some(&mut inherited)).is_ok()
            && let Some(action) = actions().of(signal)
        {
            action.set(&inherited);
        }
    }
}

/// Before an exec: a signal that the program ignores must stay ignored in the new image, even if the kernel
/// has our handler for it.
pub(crate) fn before_exec() {
    for signal in faults() {
        let ignored = actions().of(signal).map(Action::get).filter(|action| action.handler == IGNORE);
        if let Some(action) = ignored {
            let _ = kernel_action(signal, Some(&action), None);
        }
    }
}

/// Undoes [`before_exec`] after a failed exec.
pub(crate) fn exec_failed() {
    for signal in faults() {
        let program = actions().of(signal).map_or_else(KernelAction::default, Action::get);
        if program.handler == IGNORE {
            let _ = kernel_action(signal, Some(&fault_action()), None);
        }
    }
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
        return NOT_OURS; // The kernel returns the error.
    }
    if stays_unhandled(signal, new as *const KernelAction) {
        return NOT_OURS;
    }
    match change(signal, new as *const KernelAction, old as *mut KernelAction) {
        Ok(()) => 0,
        Err(errno) => errno.to_ret(),
    }
}

/// Whether the program has never handled the signal and this call does not change that: the kernel's view is
/// then the program's. posix_spawn(3) makes a hundred such calls.
fn stays_unhandled(signal: usize, new: *const KernelAction) -> bool {
    let Some(action) = actions().of(signal).filter(|_| !is_fault(signal)) else { return false };
    if action.handler.load(Ordering::Relaxed) != DEFAULT {
        return false;
    }
    // SAFETY: the copy routine handles bad pointers. The handler is the first word.
    new.is_null() || matches!(unsafe { ucopy::word(new.cast()) } as usize, DEFAULT | IGNORE)
}

fn change(signal: usize, new: *const KernelAction, old: *mut KernelAction) -> lp_abi::Result<()> {
    let program = match new.is_null() {
        true => None,
        // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid action.
        false => Some(unsafe { ucopy::get(new) }?.kept()),
    };
    let action = actions().of(signal).ok_or(Errno::EINVAL)?;
    // Under a filter the kernel decides whether the call may be made.
    let known = match &program {
        _ if lp_abi::sys::is_limited() => None,
        None => action.is_installed().then(|| action.get()),
        Some(program) if program.is_handled() => action.replace(program),
        Some(_) => None,
    };
    let seen = match known {
        Some(before) => before,
        None => change_kernels(signal, action, program.as_ref())?,
    };
    if old.is_null() {
        return Ok(());
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(old, &seen) }
}

/// Changes the action, if there is a new one, by the kernel's call. Returns the previous one.
///
/// # Errors
/// Those of rt_sigaction(2).
fn change_kernels(
    signal: usize,
    action: &Action,
    program: Option<&KernelAction>,
) -> lp_abi::Result<KernelAction> {
    let before = action.get();
    let mut was = KernelAction::default();
    match program {
        None => kernel_action(signal, None, Some(&mut was)).map(drop)?,
        Some(program) => {
            let change = action.begin();
            if program.is_handled() || is_fault(signal) {
                action.set(program);
            }
            if discards(signal as u32, program.handler) {
                deferred::forget(signal);
            }
            let done = kernel_action(signal, Some(&for_kernel(signal, program)), Some(&mut was));
            if done.is_err() {
                action.set(&before);
            }
            action.changed(change, done.is_ok() && program.is_handled());
            done?;
        }
    }
    Ok(if was.handler == lp_signal_address() { before } else { was })
}

/// What the kernel gets for an action of the program's. With a handler, `route` implements SA_RESETHAND: the
/// handler of a deferred signal must still be there afterwards. It may touch what only the gate's handler of
/// SIGBUS makes present.
fn for_kernel(signal: usize, program: &KernelAction) -> KernelAction {
    match (program.is_handled(), is_fault(signal)) {
        // The program's own mask and restorer would have it killed at the next call.
        (_, true) if signal == SIGSYS as usize => fault_action(),
        (true, _) => KernelAction {
            handler: lp_signal_address(),
            flags: program.flags & !u64::from(SA_RESETHAND) | u64::from(SA_SIGINFO),
            mask: program.mask & !bit(SIGBUS) & !trap::kept_open(program.mask),
            ..*program
        },
        (false, true) => fault_action(),
        (false, false) => *program,
    }
}

/// Whether the kernel discards a pending signal when it gets this handler.
fn discards(signal: u32, handler: usize) -> bool {
    let is_ignored = [SIGCHLD, SIGCONT, SIGURG, SIGWINCH].contains(&signal);
    handler == IGNORE || handler == DEFAULT && is_ignored
}

/// Routes a signal: returns the handler to jump to, or 0 to return to the interrupted code.
extern "sysv64" fn route(signal: usize, info: *mut Info, context: *mut u8) -> usize {
    let context = Context(context);
    // SAFETY: the kernel's siginfo is valid during the handler, and only this thread uses it.
    let info = unsafe { &mut *info };
    if !home::traps() {
        return route_programs(signal, info, &context);
    }
    if signal == SIGSYS as usize && trap::is_call(info) {
        trap::answer(&context);
        return 0;
    }
    let handler = route_programs(signal, info, &context);
    if handler != 0 {
        trap::leave_for_site(&context);
    }
    trap::unblock();
    handler
}

/// [`route`] of a signal that stands for no call.
fn route_programs(signal: usize, info: &mut Info, context: &Context) -> usize {
    // si_code. What a filter makes of a call is no fault.
    let by_instruction = info[1] as i32 > 0 && is_fault(signal) && signal != SIGSYS as usize;
    if by_instruction && signal == SIGBUS as usize {
        High::end_if_cut();
    }
    if by_instruction && resolve(signal, info[2] as usize, context) {
        return 0;
    }
    // An ending thread of a limited process has no record, and its signals are not blocked.
    let is_put_off = (tls::in_gate() != 0 || tls::deferred() != 0) && !current::thread().is_null();
    if is_put_off && !by_instruction && !wait::leave_for(signal, context) {
        deferred::put_off(signal, info, context);
        return 0;
    }
    deferred::take_turn(signal, info);
    if let Some(handler) = take_handler(signal) {
        // SAFETY: the pointer is null or this thread's own record.
        if let Some(thread) = unsafe { current::thread().as_ref() }.filter(|_| info[1] as i32 > 0) {
            High::signalled(thread, signal, info);
        }
        return handler;
    }
    let is_ignored = actions().of(signal).is_none_or(|action| action.get().handler == IGNORE);
    if by_instruction || !is_ignored {
        default(signal, info, by_instruction, context);
    }
    0
}

/// Whether a fault at `address` is not the program's: the gate met a bad pointer, or the page has become
/// present since.
fn resolve(signal: usize, address: usize, context: &Context) -> bool {
    let at = context.instruction();
    let (start, end, fault) = ucopy::fault_range();
    if (start..end).contains(&at) {
        context.set_instruction(fault);
        return true;
    }
    if entry_quick::looks().contains(&at) {
        context.set_instruction(&raw const entry::lp_entry as usize);
        return true;
    }
    tls::in_gate() == 0 && repair(signal, address, context.access())
}

/// Repairs a mapping. Runs in the gate like a call, because it takes locks. Signals that arrive meanwhile are
/// delivered at the faulting instruction if the mapping is repaired, else before the fault's handler runs.
fn repair(signal: usize, address: usize, access: Access) -> bool {
    if !High::has_mappings() {
        return false;
    }
    // A thread may touch a mapping before its first call.
    let stack = (&raw const address).addr();
    if current::thread().is_null() && first_call::start_slow(stack) {
        return false;
    }
    tls::set_in_gate(1);
    // SAFETY: the thread's own record, which nothing else uses at this point.
    let is_good = High::fault(unsafe { &*current::thread() }, signal, address, access);
    tls::set_in_gate(0);
    if interrupted() && lp_abi::sys::is_limited() {
        deliver::handle_waiting(0); // A fault interrupts no call.
    } else if interrupted() {
        let (mask, _) = deferred::release();
        if !is_good {
            set_mask(SIG_SETMASK, mask);
        }
    }
    is_good
}

/// Performs a signal's default action: the kernel's own, with its core dump and status. A faulting
/// instruction runs again; a signal that was sent is sent again. A limited process may make neither call: it
/// blocks the signal of a fault, which the kernel then ends it by, or else exits.
fn default(signal: usize, info: &Info, by_instruction: bool, context: &Context) {
    if !lp_abi::sys::is_limited() {
        if let Some(action) = actions().of(signal) {
            set_kernels(signal, action, &KernelAction::default());
        }
        if !by_instruction {
            deferred::send(signal, info);
        }
    } else if by_instruction {
        context.set_mask(context.mask() | bit(signal as u32));
    } else if !discards(signal as u32, DEFAULT) {
        // In strict mode the kernel kills it for the call. SAFETY: exit_group(2) takes no pointers.
        let _ = unsafe { syscall6(__NR_exit_group, 128 + signal, 0, 0, 0, 0, 0) };
    }
}
