//! The end of a call during which signals came.

use core::sync::atomic::Ordering;

use lp_abi::Errno;
use lp_abi::linux::{__NR_ppoll, SIG_SETMASK, timespec};

use crate::low::dispatch::{AGAIN, MAKE_THREAD, RESTART};
use crate::low::live::deferred::{note, release};
use crate::low::live::signal::{SYNCHRONOUS, bit};
use crate::low::live::{process, signal};
use crate::low::thread::pending::Info;
use crate::low::thread::{current, tls};

/// At the end of a call: sends what was put off, and makes a call that it interrupted fail or happen again.
pub(crate) extern "sysv64" fn deliver(result: isize) -> isize {
    if lp_abi::sys::is_limited() {
        return ended(result, handle_waiting());
    }
    // SAFETY: in the gate current is set, and the record is this thread's own.
    let wait_mask = unsafe { (*current::thread()).deferred.wait_mask.take() };
    // Undone first: a handler may leave by longjmp.
    let result = match result {
        MAKE_THREAD => {
            process::after_thread(Errno::EAGAIN.to_ret());
            AGAIN
        }
        other => other,
    };
    let (mask, first) = release();
    let restarts = signal::restarts(first);
    // The program's handlers run before this returns.
    signal::set_mask(SIG_SETMASK, mask);
    if let Some(mask) = wait_mask {
        wait_under(mask);
    }
    ended(result, restarts)
}

/// What becomes of a call's result after a handler has run.
fn ended(result: isize, restarts: bool) -> isize {
    match result {
        RESTART if restarts => AGAIN,
        RESTART => Errno::EINTR.to_ret(),
        other => other,
    }
}

/// In a limited process: runs the handlers of what waits, in the kernel's order. Whether the first restarts a
/// call.
#[cold]
pub(crate) fn handle_waiting() -> bool {
    tls::set_deferred(0);
    let current = current::thread();
    // SAFETY: null at the thread's end, or this thread's own record.
    let Some(deferred) = (unsafe { current.as_ref() }).map(|thread| &thread.deferred) else { return false };
    deferred.mask.store(u64::MAX, Ordering::Relaxed);
    deferred.wait_mask.set(None);
    let mut restarts = None;
    loop {
        let waiting = deferred.waiting.load(Ordering::Relaxed);
        let first = if waiting & SYNCHRONOUS != 0 { waiting & SYNCHRONOUS } else { waiting };
        if first == 0 {
            return restarts.unwrap_or(false);
        }
        let number = first.trailing_zeros() as usize + 1;
        restarts.get_or_insert(signal::restarts(number));
        // SAFETY: the bit in `waiting` says that the note is written, and keeps it until it is cleared.
        let info = unsafe { (*note(current, number)).assume_init() };
        deferred.waiting.fetch_and(!bit(number as u32), Ordering::Relaxed);
        handle_here(number, info);
    }
}

/// Runs the program's handler as a function. It sees the signal's siginfo and a context of zeros, and only
/// what the program has blocked is blocked.
fn handle_here(number: usize, mut info: Info) {
    let Some(handler) = signal::take_handler(number) else { return };
    let mut context = [0u64; CONTEXT / 8];
    // SAFETY: the program's handler, of the type that SA_SIGINFO asks for; one that takes less ignores the
    // rest.
    unsafe {
        core::mem::transmute::<usize, extern "C" fn(i32, *mut u64, *mut u64)>(handler)(
            number as i32,
            info.as_mut_ptr(),
            context.as_mut_ptr(),
        );
    }
}

/// Bytes of `struct ucontext` with room behind it.
const CONTEXT: usize = 1024;

/// Has the kernel deliver what `mask` leaves open, as a wait with that mask does.
fn wait_under(mask: u64) {
    let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel reads both.
    let _ = unsafe { lp_abi::syscall!(__NR_ppoll, 0, 0, &raw const at_once, &raw const mask, 8) };
}
