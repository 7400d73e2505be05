//! The only source of atomics, fences and waiting in Lightpath.
//!
//! `crates/models` compiles the lock-free files of this crate against a `sync` module of the same shape with
//! loom's atomics, so that a model runs the code that ships.

pub use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use core::sync::atomic::{compiler_fence, fence};

use lp_abi::linux::{__NR_futex, __NR_membarrier, __NR_nanosleep, FUTEX_WAIT, FUTEX_WAKE, membarrier_cmd};

/// Checks of a held lock before sleeping: a running holder needs about 100 ns.
pub const LOCK_SPINS: u32 = 100;

/// The common side of an asymmetric fence: prevents compiler reordering and costs no instruction.
///
/// PAIRS: [`heavy_barrier`]. With respect to a thread that runs `heavy_barrier` between its own store and
/// load, a store before `light_barrier` and a load after it are ordered as if by a full fence: the kernel
/// makes every running thread of the registered processes execute one (membarrier(2), GLOBAL_EXPEDITED).
#[inline(always)]
pub fn light_barrier() {
    // Miri has no membarrier(2): a full fence on both sides allows the same outcomes.
    if cfg!(miri) { fence(Ordering::SeqCst) } else { compiler_fence(Ordering::SeqCst) }
}

/// The rare side of an asymmetric fence: about 0.2-0.7 us.
///
/// PAIRS: [`light_barrier`]. Falls back to the slow global command where the expedited one is not registered.
/// `false` where a filter denies both: then no light barrier has been paired with, and the caller must not
/// act on what it sees.
#[cold]
#[must_use]
pub fn heavy_barrier() -> bool {
    fence(Ordering::SeqCst);
    let expedited = membarrier_cmd::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32;
    // SAFETY: membarrier touches no memory of ours.
    if unsafe { lp_abi::syscall!(__NR_membarrier, expedited, 0, 0) }.is_ok() {
        return true;
    }
    let global = membarrier_cmd::MEMBARRIER_CMD_GLOBAL as u32;
    // SAFETY: membarrier touches no memory of ours.
    unsafe { lp_abi::syscall!(__NR_membarrier, global, 0, 0) }.is_ok()
}

/// Registers the process for the [`heavy_barrier`] of other processes. exec clears the registration, so every
/// attach calls this; a fork's child inherits it with the memory.
///
/// # Errors
/// Those of membarrier(2): `EINVAL` on a kernel without the expedited command.
pub fn register_barrier() -> lp_abi::Result<()> {
    let register = membarrier_cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32;
    // SAFETY: membarrier touches no memory of ours.
    unsafe { lp_abi::syscall!(__NR_membarrier, register, 0, 0) }.map(drop)
}

/// A release fence: no instruction on x86-64.
#[inline(always)]
pub fn release_fence() {
    fence(Ordering::Release);
}

/// An acquire fence: no instruction on x86-64.
#[inline(always)]
pub fn acquire_fence() {
    fence(Ordering::Acquire);
}

/// A full fence: stores before it come before loads after it.
#[inline]
pub fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Prefetches the first two lines of a value into the cache. A hint: it reads and orders nothing.
#[inline(always)]
pub fn prefetch<T>(what: &T) {
    let line = core::ptr::from_ref(what).cast::<i8>();
    // SAFETY: a hint that accepts any address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line);
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.wrapping_add(64));
    }
}

/// Prefetches a word's line into this processor's cache as its own, for an exchange that follows. A hint: it
/// reads and orders nothing.
#[inline(always)]
pub fn prefetch_to_write<T>(what: &T) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: a hint that accepts any address.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) core::ptr::from_ref(what),
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// The same reference. The compiler does not know that it is, so it loads nothing behind it before this
/// point. The reference itself does not pass the assembly, from which it might escape.
#[inline(always)]
pub fn not_before<T>(what: &T) -> &T {
    if cfg!(miri) {
        return what;
    }
    let mut zero = 0usize;
    // SAFETY: no instruction: only hides the value.
    unsafe { core::arch::asm!("/* {0} */", inout(reg) zero, options(nomem, nostack, preserves_flags)) };
    // SAFETY: no bytes further.
    unsafe { &*core::ptr::from_ref(what).byte_add(zero) }
}

/// Tells the core that this is a spin loop.
#[inline(always)]
pub fn spin() {
    core::hint::spin_loop();
}

/// Sleeps for 50 us, to wait on a word whose writer does not wake.
#[cold]
pub fn pause() {
    let time = [0u64, 50_000];
    // SAFETY: the kernel reads the time.
    let slept = unsafe { lp_abi::syscall!(__NR_nanosleep, time.as_ptr(), 0) };
    spin_instead(slept);
}

/// Fallback for a process whose filter does not allow it to sleep.
fn spin_instead(slept: lp_abi::Result<usize>) {
    if slept == Err(lp_abi::Errno::ENOSYS) {
        (0..LOCK_SPINS).for_each(|_| spin());
    }
}

/// Sleeps while `word` is `expected`, for at most `nanoseconds` (below one second); may wake spuriously.
///
/// # Errors
/// `EINTR` when a signal arrived, `EAGAIN` when the word had changed, `ETIMEDOUT`.
#[cold]
pub fn futex_wait(word: &AtomicU32, expected: u32, nanoseconds: u64) -> lp_abi::Result<()> {
    let timeout = [0u64, nanoseconds];
    // SAFETY: the word is a live atomic and the timeout lives across the call.
    let slept =
        unsafe { lp_abi::syscall!(__NR_futex, word.as_ptr(), FUTEX_WAIT, expected, timeout.as_ptr()) };
    spin_instead(slept);
    slept.map(drop)
}

/// Wakes up to `count` sleepers of `word`.
#[cold]
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: the word is a live atomic; FUTEX_WAKE reads nothing else.
    let _ = unsafe { lp_abi::syscall!(__NR_futex, word.as_ptr(), FUTEX_WAKE, count) };
}
