//! A thread that lends its words: it has made a process or thread that shares its memory and its thread-local
//! storage, and with that the gate's words, and runs beside it. (The sanitizers' runtimes look for leaks in
//! such a process, `StopTheWorld` in LLVM's `compiler-rt/lib/sanitizer_common`.)
//!
//! Neither can use the record then, so the words name none, and the calls of both are the kernel's. The
//! thread takes its record back at its first call after the other has gone, and has been waited for if it was
//! a process.

use core::arch::asm;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use lp_abi::Errno;
use lp_abi::linux::__NR_kill;

use crate::low::thread::record::Thread;
use crate::low::thread::{current, pool, tls};

/// The record of the thread that lends, or null. One thread at a time does.
static LENDER: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
/// Its thread-local storage.
static STORAGE: AtomicUsize = AtomicUsize::new(0);
/// The process or thread that uses the words; 0 before its maker knows.
static BORROWER: AtomicU32 = AtomicU32::new(0);

/// The address of the calling thread's thread-local storage.
fn storage() -> usize {
    let address: usize;
    // SAFETY: the x86-64 ABI has the storage's own address there.
    unsafe { asm!("mov {}, fs:[0]", out(reg) address, options(nostack, preserves_flags, readonly)) };
    address
}

/// Prepares the entry, which is about to make the process or thread.
pub(crate) fn lend(thread: &Thread) {
    // Where the words are found by gs, the new process gets others; a process that has limited itself makes
    // no call to find out whether another lives.
    if tls::is_by_gs() || lp_abi::sys::is_limited() {
        return;
    }
    let own = core::ptr::from_ref(thread).cast_mut();
    if LENDER.compare_exchange(null_mut(), own, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        STORAGE.store(storage(), Ordering::Relaxed); // Relaxed, below too: only these two look.
        BORROWER.store(0, Ordering::Relaxed);
        thread.lends_words.set(1);
    }
}

/// The lender's side, with the kernel's result.
pub(crate) extern "sysv64" fn after_lend(result: isize) {
    if result < 0 {
        take_back(LENDER.load(Ordering::Acquire)); // PAIRS: the exchange in `lend`, here and below.
    } else {
        BORROWER.store(result as u32, Ordering::Relaxed);
    }
}

/// Whether the words of the calling thread, which name no record, are lent: the call is the kernel's.
pub(crate) fn is_lent() -> bool {
    let lender = LENDER.load(Ordering::Acquire);
    if lender.is_null() || STORAGE.load(Ordering::Relaxed) != storage() {
        return false;
    }
    // SAFETY: the record stays the lender's while it lends.
    if unsafe { (*lender).tid.get() } != pool::own_tid() {
        return true;
    }
    let borrower = BORROWER.load(Ordering::Relaxed);
    // SAFETY: signal 0 is none.
    if borrower == 0 || unsafe { lp_abi::syscall!(__NR_kill, borrower, 0) } != Err(Errno::ESRCH) {
        return true;
    }
    take_back(lender);
    false
}

fn take_back(lender: *mut Thread) {
    // SAFETY: the record is the calling thread's.
    unsafe { (*lender).lends_words.set(0) };
    LENDER.store(null_mut(), Ordering::Release); // PAIRS: the exchange in `lend`.
    current::enter(lender);
}
