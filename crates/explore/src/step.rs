//! The code inside an actor: it stops after a given number of instructions, and reports before it waits.
//!
//! The processor's trap flag raises SIGTRAP after every instruction. If the instruction is known by its
//! address and its number of arrivals there, a breakpoint is used instead ([`crate::trace`]). A seccomp
//! filter turns each system call that sleeps into SIGSYS; the handler notifies the conductor and ends the
//! wait when told, like a timeout. So no schedule depends on time, and a waiting actor is distinguished from
//! a slow one.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::control::{OWN, Slot, order, state};
use crate::trace::{self, Breakpoint};

static ME: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
/// Whether a stop is real, by SIGSTOP, or the actor only pauses.
static REAL: AtomicBool = AtomicBool::new(true);
static BREAKPOINT: Breakpoint = Breakpoint::new();
/// Address of the last instruction, and elements of string instructions so far.
static PLACE: AtomicU64 = AtomicU64::new(0);
static ELEMENTS: AtomicU32 = AtomicU32::new(1);
/// Whether the process is in [`unstepped`].
static UNSTEPPED: AtomicBool = AtomicBool::new(false);
/// Whether the clock is far ahead, and wakes are counted: for the judge.
static LATE: AtomicBool = AtomicBool::new(false);

/// Seconds by which a judge's clock is ahead, so that all timeouts of the region have expired.
const AHEAD: i64 = 1000;
/// Elements of a string instruction that count as one step.
const EVERY: u32 = 512;
const TRAP_FLAG: i64 = 0x100;

/// The calling process's slot.
pub(crate) fn me() -> &'static Slot {
    // SAFETY: set before the first use, to memory that stays.
    unsafe { &*ME.load(Ordering::Relaxed) }
}

/// The role decides what the filter does in addition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Makes calls.
    Actor,
    /// Checks what is left, a thousand seconds later.
    Judge,
}

/// Makes the process an actor: from now on the conductor handles its waits.
pub(crate) fn become_actor(slot: &'static Slot, role: Role) {
    use_slot(slot);
    // SAFETY: getpid has no effect.
    slot.pid.store(unsafe { libc::getpid() } as u32, Ordering::Relaxed);
    LATE.store(role == Role::Judge, Ordering::Relaxed);
    handle(libc::SIGTRAP, on_trap);
    handle(libc::SIGSYS, on_call);
    filter(role);
}

/// For a child that an actor forked: it uses another slot, and its stops are not real, because it is not the
/// conductor's child.
pub(crate) fn use_slot(slot: &'static Slot) {
    ME.store(std::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
}

/// From now on it pauses where it would be stopped.
pub(crate) fn stand() {
    REAL.store(false, Ordering::Relaxed);
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::ucontext_t);

fn handle(signal: i32, handler: Handler) {
    // SAFETY: the handlers call only what handlers may; zeros are an empty sigaction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Runs `call` up to a stop, or counts its instructions, if requested.
pub(crate) fn stepped<T>(call: impl FnOnce() -> T) -> T {
    if me().left.load(Ordering::Relaxed) == 0 {
        return call();
    }
    if BREAKPOINT.arm(me()) {
        let value = call();
        BREAKPOINT.remove();
        return value;
    }
    trap();
    let value = call();
    untrap();
    value
}

/// Runs `call` without the trap flag and without a breakpoint, which a new process of clone(2) must not
/// inherit.
pub(crate) fn unstepped<T>(call: impl FnOnce() -> T) -> T {
    UNSTEPPED.store(true, Ordering::Relaxed);
    let value = unstepped_now(call);
    UNSTEPPED.store(false, Ordering::Relaxed);
    value
}

fn unstepped_now<T>(call: impl FnOnce() -> T) -> T {
    if BREAKPOINT.remove() {
        let value = call();
        if me().left.load(Ordering::Relaxed) != 0 {
            BREAKPOINT.insert();
        }
        return value;
    }
    let flags: i64;
    // SAFETY: reads the flags and skips the red zone.
    unsafe { std::arch::asm!("sub rsp, 128", "pushfq", "pop {}", "add rsp, 128", out(reg) flags) };
    if flags & TRAP_FLAG == 0 {
        return call();
    }
    untrap();
    let value = call();
    // If nothing is left, it was stopped and went on at full speed.
    if me().left.load(Ordering::Relaxed) != 0 {
        trap();
    }
    value
}

#[inline(always)]
fn trap() {
    // SAFETY: the flag makes the processor trap, and the handler is installed. Skips the red zone.
    unsafe {
        std::arch::asm!("sub rsp, 128", "pushfq", "or qword ptr [rsp], 0x100", "popfq", "add rsp, 128")
    };
}

#[inline(always)]
fn untrap() {
    // SAFETY: changes the trap flag only; the stack's red zone is stepped over.
    unsafe {
        std::arch::asm!("sub rsp, 128", "pushfq", "and qword ptr [rsp], -257", "popfq", "add rsp, 128")
    };
}

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    let me = me();
    // SAFETY: the kernel's own record of what is interrupted.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    if let Some(arrived) = BREAKPOINT.on_trap(registers) {
        if arrived {
            me.left.store(0, Ordering::Relaxed);
            stop(me);
        }
        return;
    }
    let place = registers[libc::REG_RIP as usize] as u64;
    // A string instruction traps after each element; most elements do not count.
    if PLACE.swap(place, Ordering::Relaxed) == place {
        trace::repeats(me);
        if !ELEMENTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY) {
            return;
        }
    }
    trace::note(me, place, UNSTEPPED.load(Ordering::Relaxed));
    me.steps.fetch_add(1, Ordering::Relaxed);
    if me.left.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    stop(me);
    if me.left.load(Ordering::Relaxed) == 0 {
        registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }
}

/// Stops until told to go on.
fn stop(me: &Slot) {
    if REAL.load(Ordering::Relaxed) {
        let seen = me.orders.load(Ordering::Acquire);
        me.say(state::STOPPED);
        // SAFETY: stops this process, as another process would.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
        if me.orders.load(Ordering::Acquire) == seen {
            me.report(state::STOPPED);
        }
    } else {
        me.report(state::STOPPED);
    }
}

/// Whether a signal has arrived, as [`lp_vfs::Task::interrupted`] asks.
pub(crate) fn is_signalled() -> bool {
    me().signalled.load(Ordering::Relaxed) != 0
}

/// The signal has been handled: from here on none has arrived.
pub(crate) fn handle_signal() {
    me().signalled.store(0, Ordering::Relaxed);
}

extern "C" fn on_call(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel's own record of what is interrupted.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let number = registers[libc::REG_RAX as usize];
    // The handler's own path may cross the breakpoint.
    let armed = BREAKPOINT.remove();
    let argument = |register: i32| registers[register as usize] as usize;
    let answer = match number {
        libc::SYS_futex => futex(argument(libc::REG_RDI), argument(libc::REG_RSI), argument(libc::REG_RDX)),
        libc::SYS_clock_gettime => later(argument(libc::REG_RDI), argument(libc::REG_RSI)),
        _ => {
            wait(0);
            0
        }
    };
    registers[libc::REG_RAX as usize] = answer;
    if armed && me().left.load(Ordering::Relaxed) != 0 {
        BREAKPOINT.insert();
    }
}

fn futex(word: usize, operation: usize, value: usize) -> i64 {
    if operation & 0x7f == libc::FUTEX_WAKE as usize {
        me().wakes.fetch_add(1, Ordering::Relaxed);
        return 0;
    }
    // SAFETY: a word that the interrupted code waits on.
    if unsafe { std::ptr::read_volatile(word as *const u32) } != value as u32 {
        return -i64::from(libc::EAGAIN);
    }
    wait(word as u64);
    if is_signalled() { -i64::from(libc::EINTR) } else { -i64::from(libc::ETIMEDOUT) }
}

/// Waits for the conductor instead of a change of the futex at `word`; 0 means a pause.
fn wait(word: u64) {
    let me = me();
    me.waits.fetch_add(1, Ordering::Relaxed);
    me.waits_at.store(word, Ordering::Relaxed);
    while me.report(state::BLOCKED) != order::GO_ON {}
}

/// clock_gettime(2), with the clock ahead.
fn later(clock: usize, to: usize) -> i64 {
    // SAFETY: the interrupted code's own buffer for a time; the C library uses the vdso, not the kernel.
    unsafe {
        let to = to as *mut libc::timespec;
        libc::clock_gettime(clock as i32, to);
        (*to).tv_sec += AHEAD;
    }
    0
}

/// Loads, compares and decisions of a filter's program.
fn filter(role: Role) {
    const LOAD: u16 = 0x20;
    const AND: u16 = 0x54;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let is = |value: u32, then: u8, otherwise: u8| instruction(EQUAL, value, then, otherwise);
    let clock = if role == Role::Judge { libc::SYS_clock_gettime as u32 } else { u32::MAX };
    let wake = if role == Role::Judge { libc::FUTEX_WAKE as u32 } else { u32::MAX };
    // Offsets in struct seccomp_data: the number at 0, the low half of argument n at 16 + 8 n.
    let program = [
        instruction(LOAD, 0, 0, 0),
        is(libc::SYS_futex as u32, 5, 0),
        is(libc::SYS_nanosleep as u32, 11, 0),
        is(libc::SYS_clock_nanosleep as u32, 10, 0),
        is(libc::SYS_sched_yield as u32, 9, 0),
        is(clock, 8, 0),
        instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        // futex(2)
        instruction(LOAD, 16 + 8 * 5, 0, 0),
        is(OWN as u32, 4, 0),
        instruction(LOAD, 16 + 8, 0, 0),
        instruction(AND, 0x7f, 0, 0),
        is(libc::FUTEX_WAIT as u32, 2, 0),
        is(wake, 1, 0),
        instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        instruction(RETURN, libc::SECCOMP_RET_TRAP, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(set, 0, "seccomp");
    }
}

fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}
