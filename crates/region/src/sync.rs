//! The only door to atomics: everything in Lightpath takes them from here.
//!
//! Under `--cfg loom` the same names are loom's, so that a model runs the very code that ships.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering, compiler_fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The common side of an asymmetric fence: keeps the compiler from moving accesses, costs no instruction.
///
/// PAIRS: [`heavy_barrier`]. A store before `light_barrier` and a load after it are, towards a thread that runs
/// `heavy_barrier` between its own store and load, as if separated by a full fence: the kernel makes every
/// running thread of the registered processes pass one (membarrier(2), GLOBAL_EXPEDITED).
#[inline(always)]
pub fn light_barrier() {
    #[cfg(not(loom))]
    compiler_fence(Ordering::SeqCst);
    // A model has no membarrier; a full fence on both sides has the same set of outcomes.
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// The rare side of an asymmetric fence: about 0.2-0.7 us.
///
/// PAIRS: [`light_barrier`]. Falls back to the slow global command where the expedited one is not registered.
#[cold]
pub fn heavy_barrier() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    {
        use lp_abi::linux::{__NR_membarrier, membarrier_cmd};
        core::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: membarrier touches no memory of ours.
        let done = unsafe {
            lp_abi::syscall!(__NR_membarrier, membarrier_cmd::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32, 0, 0)
        };
        if done.is_err() {
            // SAFETY: as above.
            let _ = unsafe {
                lp_abi::syscall!(__NR_membarrier, membarrier_cmd::MEMBARRIER_CMD_GLOBAL as u32, 0, 0)
            };
        }
    }
}

/// Registers the process for [`heavy_barrier`] of others. exec clears it, so every attach calls this.
pub fn register_barrier() -> lp_abi::Result<()> {
    use lp_abi::linux::{__NR_membarrier, membarrier_cmd};
    // SAFETY: membarrier touches no memory of ours.
    unsafe {
        lp_abi::syscall!(
            __NR_membarrier,
            membarrier_cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32,
            0,
            0
        )
    }
    .map(drop)
}
