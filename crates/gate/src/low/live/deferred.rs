//! Signals that arrive during a call, and the calls that they end.
//!
//! A signal whose handler must wait has left the kernel's queue. [`keep`] notes its siginfo under its number
//! and blocks all signals in the context that the kernel's frame returns to, so that later ones stay in the
//! kernel's queue. The kernel may have pushed several frames before the first instruction of any of them:
//! each comes here in turn, and the mask that the program had is what all their contexts have in common. At
//! the end of the call [`deliver`] sends every signal to the thread once more and restores that mask, and the
//! kernel delivers them as if they had just come.
//!
//! # Order
//! Signals of one number are delivered in the order in which they were sent. A signal that is sent once more
//! is queued behind those of its number that have come meanwhile. So what is sent is only a token: the note
//! stays, and [`take_turn`] gives the oldest siginfo to whichever frame comes first. A real-time signal whose
//! siginfo is not the token's takes its place in the note, and so on until the token arrives. Of other
//! signals the kernel keeps one of each number, the first, so there the first frame ends it.
//!
//! The token is the signal's own siginfo with a mark in bytes that siginfo_t does not use, so that a program
//! that fetches it with sigwaitinfo(2) sees nothing odd.
//!
//! # Limited processes
//! A process that has limited itself ([`crate::high::calls::filter`]) can neither restore a mask nor send
//! itself a signal. There the mask stays as it is, one siginfo of each number is kept, and the end of the
//! call runs the program's handlers as functions ([`handle_here`]).

use core::arch::global_asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use lp_abi::Errno;
use lp_abi::linux::{__NR_getpid, __NR_rt_tgsigqueueinfo, SI_USER, SIG_BLOCK};

use crate::low::live::signal;
use crate::low::live::signal::{Context, SYNCHRONOUS, bit};
use crate::low::live::wait;
use crate::low::thread::actions::SIGNALS;
use crate::low::thread::current;
use crate::low::thread::pending::Info;
use crate::low::thread::pool;
use crate::low::thread::record::Thread;
use crate::low::thread::tls;

/// The first real-time signal; the kernel queues these.
const FIRST_QUEUED: usize = 32;
/// Marks a token: in the upper half of the siginfo's second word, which is padding.
const TOKEN: u64 = 0x6c70_7369 << 32;

global_asm!(
    ".pushsection .text.lp_block,\"ax\",@progbits",
    ".globl lp_block, lp_block_start, lp_block_end, lp_block_interrupted, lp_fork, lp_fork_start, lp_fork_end",
    ".hidden lp_block, lp_block_start, lp_block_end, lp_block_interrupted, lp_fork, lp_fork_start, lp_fork_end",
    // lp_block(rdi call, rsi its six arguments, rdx the address of the mark): a system call that a signal
    // ends, also one that arrives between the look at the mark and the kernel's call.
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
    // lp_fork(rdi call, rsi its six arguments, rdx the address of `waiting`, rcx where its value goes): a
    // system call, and what waited when it was made: a signal that arrives between the look and the kernel's
    // call has both made again.
    ".balign 16",
    "lp_fork:",
    "push rbx",
    "push r12",
    "push r13",
    "mov r13d, edi",
    "mov rbx, rdx",
    "mov r12, rcx",
    "mov rax, rsi",
    "mov rdi, [rax]",
    "mov rsi, [rax + 8]",
    "mov rdx, [rax + 16]",
    "mov r10, [rax + 24]",
    "mov r8, [rax + 32]",
    "mov r9, [rax + 40]",
    "lp_fork_start:",
    "mov rax, [rbx]",
    "mov [r12], rax",
    "mov eax, r13d",
    "syscall",
    "lp_fork_end:",
    "pop r13",
    "pop r12",
    "pop rbx",
    "ret",
    ".popsection",
);

unsafe extern "sysv64" {
    fn lp_block(nr: u32, arguments: *const [usize; 6], mark: *const u32) -> isize;
    fn lp_fork(nr: u32, arguments: *const [usize; 6], waiting: *const AtomicU64, before: *mut u64) -> isize;
}

/// A system call that may wait, made in the gate on the program's behalf. A signal that the program handles
/// ends it with `EINTR`, with or without SA_RESTART: the handler of the dispatch table then returns
/// [`RESTART`], or `EINTR` where signal(7) says that the call is never restarted.
///
/// # Errors
/// The call's.
///
/// # Safety
/// As the call itself.
pub unsafe fn blocking_syscall(nr: u32, arguments: [usize; 6]) -> lp_abi::Result<usize> {
    let mark: *const u32;
    // SAFETY: computes an address in this thread's storage; the first word of a thread's block is its own
    // address.
    unsafe {
        core::arch::asm!("mov {at}, qword ptr [rip + lp_tls@GOTTPOFF]", "add {at}, qword ptr fs:[0]",
            "add {at}, {deferred}", at = out(reg) mark, deferred = const tls::DEFERRED, options(nostack));
    }
    // SAFETY: the calling thread's own record.
    if let Some(thread) = unsafe { current::thread().as_ref() } {
        thread.crossed.set(true);
    }
    // SAFETY: the arguments are good for the call, and its effect is the caller's to cause.
    Errno::from_ret(unsafe { lp_block(nr, &raw const arguments, mark) })
}

/// Whether a signal waits for the end of this call: a call that waits without the kernel must give up with
/// [`RESTART`].
pub fn interrupted() -> bool {
    tls::deferred() != 0
}

/// A call that had `mask` while it waited, in place of the program's `own`, gives up with `EINTR`: what ended
/// it is delivered under that mask. The contexts that it interrupted do not tell the program's: the kernel
/// keeps that for the first alone.
pub(crate) fn ended_under(mask: u64, own: u64) {
    // SAFETY: in the gate current is set, and the record is this thread's own.
    let deferred = unsafe { &(*current::thread()).deferred };
    deferred.mask.store(own, Ordering::Relaxed);
    deferred.wait_mask.set(Some(mask));
}

/// A system call that makes a child with a copy of this memory. In the child, what waited in the parent is
/// forgotten; what has come to the child waits for the end of the call, and so does the mask.
///
/// # Safety
/// As the call itself; both sides return.
pub(crate) unsafe fn fork(nr: u32, arguments: [usize; 6]) -> isize {
    let mut before = 0;
    // SAFETY: in the gate current is set, and the record is this thread's own.
    let deferred = unsafe { &(*current::thread()).deferred };
    // SAFETY: the arguments are good for the call; both sides return.
    let result = unsafe { lp_fork(nr, &raw const arguments, &raw const deferred.waiting, &raw mut before) };
    if result == 0 {
        deferred.waiting.fetch_and(!before, Ordering::Relaxed);
        deferred.sent.store(0, Ordering::Relaxed);
    }
    result
}

unsafe extern "C" {
    static lp_block_start: u8;
    static lp_block_end: u8;
    static lp_block_interrupted: u8;
    static lp_fork_start: u8;
    static lp_fork_end: u8;
}

/// Where a thread goes on that a signal has interrupted at `at`: elsewhere if it was about to make a system
/// call.
fn resume_at(at: usize) -> usize {
    if (&raw const lp_block_start as usize..&raw const lp_block_end as usize).contains(&at) {
        return &raw const lp_block_interrupted as usize;
    }
    if let Some(resumed) = wait::resume_at(at) {
        return resumed;
    }
    let fork = &raw const lp_fork_start as usize..&raw const lp_fork_end as usize;
    if fork.contains(&at) { fork.start } else { at }
}

/// Puts a signal off that has interrupted the gate.
pub(crate) fn put_off(number: usize, info: &Info, context: &Context) {
    context.set_instruction(resume_at(context.instruction()));
    let current = current::thread();
    // SAFETY: in the gate current is set, and the record is this thread's own.
    let deferred = unsafe { &(*current).deferred };
    deferred.mask.fetch_and(context.mask(), Ordering::Relaxed);
    if !lp_abi::sys::is_limited() {
        context.set_mask(context.mask() | !SYNCHRONOUS);
    }
    keep(current, number, info);
    tls::set_deferred(1);
}

/// Notes a signal's siginfo, unless an older one of its number is noted already. The bits are taken before
/// the note is written: a frame of the same number may come in between.
fn keep(current: *mut Thread, number: usize, info: &Info) {
    // SAFETY: the caller's thread's own record.
    let deferred = unsafe { &(*current).deferred };
    let bit = bit(number as u32);
    let is_queued = number >= FIRST_QUEUED;
    let sent = deferred.sent.load(Ordering::Relaxed) & bit != 0;
    if sent && (!is_queued || is_token(info)) {
        deferred.sent.fetch_and(!bit, Ordering::Relaxed);
        deferred.waiting.fetch_or(bit, Ordering::Relaxed);
    } else if !sent && deferred.waiting.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        // SAFETY: the bit says that the note is ours to write.
        unsafe { (*note(current, number)).write(*info) };
    } else if is_queued && !lp_abi::sys::is_limited() {
        // Blocked first: it would come back at once.
        signal::set_mask(SIG_BLOCK, u64::MAX);
        send(number, info);
    }
}

/// Whether it is a token, or what is left of one that had no room in the queue.
fn is_token(info: &Info) -> bool {
    info[1] & !0 << 32 == TOKEN || (info[1], info[2]) == (u64::from(SI_USER), 0)
}

pub(crate) fn note(current: *mut Thread, number: usize) -> *mut MaybeUninit<Info> {
    // SAFETY: the calling thread's own record; numbers of signals are 1 to SIGNALS.
    unsafe { (*current).notes.0[(number - 1) % SIGNALS].get() }
}

/// Gives the oldest siginfo of its number to a signal whose handler is about to run.
pub(crate) fn take_turn(number: usize, info: &mut Info) {
    let current = current::thread();
    // SAFETY: null, or this thread's own record.
    let Some(deferred) = (unsafe { current.as_ref() }).map(|thread| &thread.deferred) else { return };
    let bit = bit(number as u32);
    if deferred.sent.load(Ordering::Relaxed) & bit == 0 {
        return;
    }
    let came = *info;
    // SAFETY: the bit says that the note is written.
    *info = unsafe { (*note(current, number)).assume_init() };
    if number < FIRST_QUEUED || is_token(&came) {
        deferred.sent.fetch_and(!bit, Ordering::Relaxed);
    } else {
        // SAFETY: the bit says that the note is written.
        unsafe { (*note(current, number)).write(came) };
    }
}

/// What was pending of a signal is discarded, tokens too.
pub(crate) fn forget(number: usize) {
    // SAFETY: in the gate current is set, and the record is this thread's own.
    unsafe { (*current::thread()).deferred.sent.fetch_and(!bit(number as u32), Ordering::Relaxed) };
}

/// Sends the thread what waits once more, with all signals blocked from here on. Gives the mask to go back
/// to, and the signal among them that the kernel delivers first.
pub(crate) fn release() -> (u64, usize) {
    signal::set_mask(SIG_BLOCK, u64::MAX);
    let current = current::thread();
    // SAFETY: in the gate current is set, and the record is this thread's own.
    let deferred = unsafe { &(*current).deferred };
    let waiting = deferred.waiting.swap(0, Ordering::Relaxed);
    let mask = deferred.mask.swap(u64::MAX, Ordering::Relaxed);
    tls::set_deferred(0);
    let first = if waiting & SYNCHRONOUS != 0 { waiting & SYNCHRONOUS } else { waiting };
    let mut left = waiting;
    while left != 0 {
        let number = left.trailing_zeros() as usize + 1;
        left &= left - 1;
        deferred.sent.fetch_or(bit(number as u32), Ordering::Relaxed);
        // SAFETY: the bit in `waiting` says that the note is written.
        let mut token = unsafe { (*note(current, number)).assume_init() };
        token[1] = token[1] & 0xffff_ffff | TOKEN;
        send(number, &token);
    }
    (mask, first.trailing_zeros() as usize + 1)
}

/// Sends the calling thread a signal. Without room in its queue (RLIMIT_SIGPENDING) a signal from kill(2)
/// passes all the same.
pub(crate) fn send(number: usize, info: &Info) {
    // SAFETY: no effect.
    let pid = unsafe { lp_abi::syscall!(__NR_getpid) }.unwrap_or(0);
    let tid = pool::own_tid();
    // SAFETY: the kernel reads the siginfo; to itself a process may send any.
    let queue = |info: &Info| unsafe {
        lp_abi::syscall!(__NR_rt_tgsigqueueinfo, pid, tid, number, info as *const Info)
    };
    if queue(info).is_err() {
        let _ = queue(&[0; 16]); // SI_USER, of nobody: see `is_token`.
    }
}
