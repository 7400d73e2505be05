//! Signals that arrive during a call, and the calls that they end.
//!
//! A signal whose handler must wait has left the kernel's queue. [`keep`] records its siginfo under its
//! number and blocks all signals in the context to which the kernel's frame returns, so that later ones stay
//! in the kernel's queue. The kernel may have pushed several frames before the first instruction of any of
//! them. Each comes here in turn, and the program's mask is the intersection of the masks in all their
//! contexts. At the end of the call [`deliver`] sends every signal to the thread again and restores that
//! mask; the kernel then delivers them as if they had just arrived.
//!
//! # Order
//! Signals of one number are delivered in the order in which they were sent. A signal that is sent again is
//! queued behind those of its number that have arrived meanwhile, so what is sent is only a token. The note
//! stays, and [`take_turn`] gives the oldest siginfo to whichever frame comes first. If a real-time signal's
//! siginfo is not the token's, it takes the place of the note, until the token arrives. Of other signals the
//! kernel keeps one of each number, the first, so the first frame ends it.
//!
//! The token is the signal's own siginfo with a mark in bytes that siginfo_t does not use, so that a program
//! that fetches it with sigwaitinfo(2) sees nothing odd. Where a filter denies rt_tgsigqueueinfo(2), the
//! token is a signal from the process to itself by tgkill(2).
//!
//! # Limited processes
//! A process that has limited itself ([`crate::high::calls::filter`]) can neither restore a mask nor send
//! itself a signal. Its mask stays as it is, one siginfo of each number is kept, and the end of the call runs
//! the program's handlers as functions ([`handle_here`]).

use core::arch::global_asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lp_abi::Errno;
use lp_abi::linux::{__NR_getpid, __NR_rt_tgsigqueueinfo, __NR_tgkill, SI_USER, SIG_BLOCK};

use crate::low::dispatch::AGAIN;
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
/// The result of `lp_block` for a call that it has not made: no result of the kernel's.
const NOT_BEGUN: isize = isize::MIN;

global_asm!(
    ".pushsection .text.startup.lp_block,\"ax\",@progbits",
    ".globl lp_block, lp_block_start, lp_block_end, lp_block_interrupted, lp_fork, lp_fork_start, lp_fork_end",
    ".hidden lp_block, lp_block_start, lp_block_end, lp_block_interrupted, lp_fork, lp_fork_start, lp_fork_end",
    // lp_block(rdi call, rsi its six arguments, rdx the address of the mark): a system call that a signal
    // ends. One that arrives between the check of the mark and the kernel's call keeps it from being made.
    ".balign 16",
    "lp_block:",
    ".cfi_startproc",
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
    "mov rax, {not_begun}",
    "ret",
    ".cfi_endproc",
    // lp_fork(rdi call, rsi its six arguments, rdx the address of `waiting`, rcx where its value goes): a
    // system call, with the value of `waiting` at the time of the call. A signal that arrives between the
    // load and the kernel's call restarts both.
    ".balign 16",
    "lp_fork:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r13, 0",
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
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r13",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".popsection",
    not_begun = const NOT_BEGUN,
);

unsafe extern "sysv64" {
    fn lp_block(nr: u32, arguments: *const [usize; 6], mark: *const u32) -> isize;
    fn lp_fork(nr: u32, arguments: *const [usize; 6], waiting: *const AtomicU64, before: *mut u64) -> isize;
}

/// Makes a system call that may wait, in the gate on the program's behalf. A signal that the program handles
/// ends it with `EINTR`, with or without SA_RESTART, even before the kernel has seen it.
///
/// # Errors
/// Those of the call.
///
/// # Safety
/// The arguments must be valid for the call, and the caller answers for its effects.
pub(crate) unsafe fn blocking_syscall(nr: u32, arguments: [usize; 6]) -> lp_abi::Result<usize> {
    // SAFETY: what `block` asks for is what this function asks of its caller.
    match unsafe { block(nr, arguments) } {
        NOT_BEGUN => Err(Errno::EINTR),
        result => Errno::from_ret(result),
    }
}

/// Makes the program's own call, which may wait, in the gate. Returns what the handler of the dispatch table
/// then returns: the result, or [`AGAIN`] if a signal came before the kernel saw the call, which may be one
/// that signals never end, or if the kernel restarts it. The kernel knows the program's SA_RESTART, so
/// `EINTR` is its last word.
///
/// # Safety
/// As for [`blocking_syscall`].
pub(crate) unsafe fn programs_syscall(nr: u32, arguments: [usize; 6]) -> isize {
    // SAFETY: what `block` asks for is what this function asks of its caller.
    match unsafe { block(nr, arguments) } {
        NOT_BEGUN => AGAIN,
        result => result,
    }
}

/// The kernel's result of a call that a signal may end, or [`NOT_BEGUN`].
///
/// # Safety
/// As for [`blocking_syscall`].
unsafe fn block(nr: u32, arguments: [usize; 6]) -> isize {
    let mark: *const u32;
    // SAFETY: computes an address in this thread's storage; the first word of a thread's block is its own
    // address.
    unsafe {
        core::arch::asm!("mov {at}, qword ptr [rip + lp_tls@GOTTPOFF]", "add {at}, qword ptr fs:[0]",
            "add {at}, {deferred}", at = out(reg) mark, deferred = const tls::DEFERRED, options(nostack));
    }
    // SAFETY: null or the calling thread's own record.
    if let Some(thread) = unsafe { current::thread().as_ref() } {
        thread.crossed.set(true);
    }
    // SAFETY: the caller guarantees valid arguments and answers for the call's effects.
    unsafe { lp_block(nr, &raw const arguments, mark) }
}

/// Whether a signal handler waits for the end of this call. A call that waits without the kernel must then
/// give up with [`RESTART`](crate::low::dispatch::RESTART).
pub(crate) fn interrupted() -> bool {
    tls::deferred() != 0
}

/// Records that a call that waited with `mask`, in place of the program's mask `own`, gives up with `EINTR`.
/// The signal that ended it is delivered under `mask`. The interrupted contexts do not contain the program's
/// mask: the kernel keeps it for the first one only.
pub(crate) fn ended_under(mask: u64, own: u64) {
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
    let deferred = unsafe { &(*current::thread()).deferred };
    deferred.mask.store(own, Ordering::Relaxed);
    deferred.wait_mask.set(Some(mask));
}

/// A system call that creates a child with a copy of this memory. The child forgets what was deferred in the
/// parent. Signals that have come to the child wait for the end of the call, and so does the mask.
///
/// # Safety
/// The arguments must be valid for the call, and both sides must return to here with memory of their own.
pub(crate) unsafe fn fork(nr: u32, arguments: [usize; 6]) -> isize {
    let mut before = 0;
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
    let deferred = unsafe { &(*current::thread()).deferred };
    // SAFETY: the caller guarantees valid arguments and that both sides return.
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

/// Where a thread that a signal interrupted at `at` continues: elsewhere if it was about to make a system
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

/// Defers a signal that interrupted the gate.
pub(crate) fn put_off(number: usize, info: &Info, context: &Context) {
    context.set_instruction(resume_at(context.instruction()));
    let current = current::thread();
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
    let deferred = unsafe { &(*current).deferred };
    deferred.mask.fetch_and(context.mask(), Ordering::Relaxed);
    if !lp_abi::sys::is_limited() {
        context.set_mask(context.mask() | !SYNCHRONOUS);
    }
    keep(current, number, info);
    tls::set_deferred(1);
}

/// Records a signal's siginfo, unless an older one of its number is recorded. The bits are set before the
/// note is written, because a frame of the same number may intervene.
fn keep(current: *mut Thread, number: usize, info: &Info) {
    // SAFETY: the caller passes the calling thread's own record.
    let deferred = unsafe { &(*current).deferred };
    let bit = bit(number as u32);
    let is_queued = number >= FIRST_QUEUED;
    let sent = deferred.sent.load(Ordering::Relaxed) & bit != 0;
    if sent && (!is_queued || is_token(info)) {
        deferred.sent.fetch_and(!bit, Ordering::Relaxed);
        deferred.waiting.fetch_or(bit, Ordering::Relaxed);
    } else if !sent && deferred.waiting.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        // SAFETY: this frame set the bit, so the note is its to write.
        unsafe { (*note(current, number)).write(*info) };
    } else if is_queued && !lp_abi::sys::is_limited() {
        // Block first: the signal would return at once.
        signal::set_mask(SIG_BLOCK, u64::MAX);
        send(number, info);
    }
}

/// Whether `info` is a token, or the remains of one for which the queue had no room.
fn is_token(info: &Info) -> bool {
    info[1] & !0 << 32 == TOKEN || (info[1], info[2]) == (u64::from(SI_USER), 0) || is_killed_by_itself(info)
}

/// `SI_TKILL` of sigaction(2).
const SI_TKILL: i32 = -6;

/// Nonzero once tokens have been sent by tgkill(2).
static BY_KILL: AtomicU32 = AtomicU32::new(0);

/// Whether `info` is a token sent by tgkill(2). A signal of the program's own that looks the same is given
/// the token's siginfo, and the token its.
fn is_killed_by_itself(info: &Info) -> bool {
    // Relaxed: a filter lasts, and the thread that sent a token sees its own store.
    BY_KILL.load(Ordering::Relaxed) != 0 && info[1] as i32 == SI_TKILL && info[2] as u32 == own_pid() as u32
}

fn own_pid() -> usize {
    // SAFETY: getpid(2) takes no pointers.
    unsafe { lp_abi::syscall!(__NR_getpid) }.unwrap_or(0)
}

pub(crate) fn note(current: *mut Thread, number: usize) -> *mut MaybeUninit<Info> {
    // SAFETY: the calling thread's own record; the index is within SIGNALS.
    unsafe { (*current).notes.0[(number - 1) % SIGNALS].get() }
}

/// Replaces the siginfo of a signal whose handler is about to run by the oldest one of its number.
pub(crate) fn take_turn(number: usize, info: &mut Info) {
    let current = current::thread();
    // SAFETY: the pointer is null or this thread's own record.
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
        // SAFETY: the bit reserves the note for this thread.
        unsafe { (*note(current, number)).write(came) };
    }
}

/// Discards what was pending of a signal, tokens too.
pub(crate) fn forget(number: usize) {
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
    unsafe { (*current::thread()).deferred.sent.fetch_and(!bit(number as u32), Ordering::Relaxed) };
}

/// Sends the deferred signals to the thread again, with all signals blocked from here on. Returns the mask to
/// restore, and the signal among them that the kernel delivers first.
pub(crate) fn release() -> (u64, usize) {
    signal::set_mask(SIG_BLOCK, u64::MAX);
    let current = current::thread();
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
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

/// Sends the calling thread a signal. If its queue is full (RLIMIT_SIGPENDING), sends one as from kill(2),
/// which still passes; if a filter denies both, one by tgkill(2).
pub(crate) fn send(number: usize, info: &Info) {
    let (pid, tid) = (own_pid(), pool::own_tid());
    // SAFETY: the kernel reads the siginfo; a process may send itself any.
    let queue = |info: &Info| unsafe {
        lp_abi::syscall!(__NR_rt_tgsigqueueinfo, pid, tid, number, info as *const Info)
    };
    // SI_USER with pid 0: see `is_token`.
    if queue(info).is_err() && queue(&[0; 16]).is_err() {
        BY_KILL.store(1, Ordering::Relaxed);
        // SAFETY: a process may send itself any signal.
        let _ = unsafe { lp_abi::syscall!(__NR_tgkill, pid, tid, number) };
    }
}
