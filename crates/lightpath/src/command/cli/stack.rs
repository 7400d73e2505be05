//! A stack for the command where the limit on the kernel's (RLIMIT_STACK) is small.

use std::cell::Cell;

/// Bytes of stack that every verb gets by with.
const ENOUGH: usize = 1 << 20;
/// Bytes of a stack of our own. The kernel provides memory for what is used.
const OWN: usize = 8 << 20;
/// Bytes below it that nothing may touch.
const GUARD: usize = 64 << 10;

/// What runs on the stack of our own, and what it returned.
struct Call {
    function: fn() -> i32,
    status: Cell<i32>,
}

/// Calls `function`, on a stack of our own if the limit is small. The process still has one thread, and the
/// limit stays as it is for the programs that it starts.
pub(crate) fn with_enough(function: fn() -> i32) -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is writable.
    let found = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    if found == 0 && limit.rlim_cur >= ENOUGH as u64 {
        return function();
    }
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
    );
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), GUARD + OWN, protection, flags, -1, 0) };
    // SAFETY: the lowest part of the mapping, which nothing uses.
    if at == libc::MAP_FAILED || unsafe { libc::mprotect(at, GUARD, libc::PROT_NONE) } != 0 {
        return function();
    }
    let call = Call { function, status: Cell::new(0) };
    // SAFETY: the top is a multiple of 16. The callee keeps r12, and nothing unwinds through it, as it is
    // `extern "C"`.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, rsi",
            "call {enter}",
            "mov rsp, r12",
            enter = sym enter,
            in("rdi") &raw const call,
            in("rsi") at.add(GUARD + OWN),
            out("r12") _,
            clobber_abi("C"),
        );
    }
    call.status.get()
}

extern "C" fn enter(call: &Call) {
    call.status.set((call.function)());
}
