//! The end of a call during which signals arrived.

use core::sync::atomic::Ordering;

use lp_abi::Errno;
use lp_abi::linux::{
    __NR_creat, __NR_fcntl, __NR_open, __NR_openat, __NR_ppoll, __NR_pread64, __NR_preadv, __NR_preadv2,
    __NR_pwrite64, __NR_pwritev, __NR_pwritev2, __NR_read, __NR_readv, __NR_splice, __NR_tee, __NR_vmsplice,
    __NR_write, __NR_writev, SIG_SETMASK, timespec,
};

use crate::low::dispatch::{AGAIN, MAKE_THREAD, RESTART};
use crate::low::live::deferred::{note, release};
use crate::low::live::signal::{SYNCHRONOUS, bit};
use crate::low::live::{process, signal};
use crate::low::thread::pending::Info;
use crate::low::thread::{current, tls};

/// At the end of a call: sends the deferred signals, and makes a call that they interrupted fail or restart.
pub(crate) extern "sysv64" fn deliver(result: isize, number: usize) -> isize {
    if lp_abi::sys::is_limited() {
        return ended(result, handle_waiting(number as u32));
    }
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
    let wait_mask = unsafe { (*current::thread()).deferred.wait_mask.take() };
    // Undo this first: a signal handler may leave by longjmp.
    let result = match result {
        MAKE_THREAD => {
            process::after_thread(Errno::EAGAIN.to_ret());
            AGAIN
        }
        other => other,
    };
    let (mask, first) = release();
    let cancels = cancels(first, number as u32);
    let restarts = !cancels && signal::restarts(first);
    let result = if cancels && result == AGAIN { RESTART } else { result };
    // The program's handlers run before this returns.
    signal::set_mask(SIG_SETMASK, mask);
    if let Some(mask) = wait_mask {
        wait_under(mask);
    }
    ended(result, restarts)
}

/// Calls that may wait in the gate and are cancellation points (pthreads(7)).
const CANCELLABLE: [u32; 17] = [
    __NR_read,
    __NR_write,
    __NR_open,
    __NR_pread64,
    __NR_pwrite64,
    __NR_readv,
    __NR_writev,
    __NR_fcntl,
    __NR_creat,
    __NR_openat,
    __NR_splice,
    __NR_tee,
    __NR_vmsplice,
    __NR_preadv,
    __NR_pwritev,
    __NR_preadv2,
    __NR_pwritev2,
];

/// Whether a call fails with EINTR because this signal cancels the thread.
///
/// Handlers by which C libraries cancel threads have SA_RESTART, and look for the interrupted instruction
/// at their own site. Finding another there, those of musl and of glibc since 2.41 leave the rest to the
/// function that has made the call: it ends the thread after EINTR.
fn cancels(signal: usize, number: u32) -> bool {
    CANCELLABLE.contains(&number) && signal::cancels(signal)
}

/// The result of a call after a signal handler has run.
fn ended(result: isize, restarts: bool) -> isize {
    match result {
        RESTART if restarts => AGAIN,
        RESTART => Errno::EINTR.to_ret(),
        other => other,
    }
}

/// In a limited process: runs the handlers of deferred signals in the kernel's order. Returns whether the
/// first one restarts the call of that number.
#[cold]
pub(crate) fn handle_waiting(call: u32) -> bool {
    tls::set_deferred(0);
    let current = current::thread();
    // SAFETY: the pointer is null (at the thread's end) or this thread's own record.
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
        restarts.get_or_insert(signal::restarts(number) && !cancels(number, call));
        // SAFETY: the bit in `waiting` says that the note is written, and reserves the note until it is
        // cleared.
        let info = unsafe { (*note(current, number)).assume_init() };
        deferred.waiting.fetch_and(!bit(number as u32), Ordering::Relaxed);
        handle_here(number, info);
    }
}

/// Runs the program's handler as a function. It gets the signal's siginfo and a zeroed context; only signals
/// that the program has blocked are blocked.
fn handle_here(number: usize, mut info: Info) {
    let Some(handler) = signal::take_handler(number) else { return };
    let mut context = [0u64; CONTEXT / 8];
    // SAFETY: the program's handler, called with the arguments that SA_SIGINFO specifies; a handler without
    // SA_SIGINFO ignores the last two.
    unsafe {
        core::mem::transmute::<usize, extern "C" fn(i32, *mut u64, *mut u64)>(handler)(
            number as i32,
            info.as_mut_ptr(),
            context.as_mut_ptr(),
        );
    }
}

/// Size of `struct ucontext`, rounded up generously, in bytes.
const CONTEXT: usize = 1024;

/// Makes the kernel deliver the signals that `mask` leaves open, as a wait with that mask would.
fn wait_under(mask: u64) {
    let at_once = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel only reads the timeout and the mask, which outlive the call.
    let _ = unsafe { lp_abi::syscall!(__NR_ppoll, 0, 0, &raw const at_once, &raw const mask, 8) };
}
