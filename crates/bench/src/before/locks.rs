//! The locks of the old designs, as Linux had them, in memory that processes share.

use lp_region::sync::{AtomicU32, Ordering, futex_wait, futex_wake, spin};

/// Checks of a held lock before yielding the processor: a kernel would not be preempted here.
const SPINS: u32 = 200;

/// `spinlock_t`. The kernel disables preemption, but a holder here may be descheduled, so a waiter yields
/// after a while.
#[repr(C, align(64))]
pub(crate) struct SpinLock(AtomicU32);

impl SpinLock {
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut looks = 0;
        // Acquire: pairs with the release below.
        while self.0.swap(1, Ordering::Acquire) != 0 {
            while self.0.load(Ordering::Relaxed) != 0 {
                wait_a_little(&mut looks);
            }
        }
        let value = work();
        self.0.store(0, Ordering::Release);
        value
    }
}

/// `struct mutex`: 0 free, 1 held, 2 held and contended.
#[repr(C, align(64))]
pub(crate) struct Mutex(AtomicU32);

impl Mutex {
    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        // Acquire: pairs with the release below.
        if self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow();
        }
        let value = work();
        if self.0.swap(0, Ordering::Release) == 2 {
            futex_wake(&self.0, 1);
        }
        value
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            if self.0.load(Ordering::Relaxed) == 0
                && self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            spin();
        }
        while self.0.swap(2, Ordering::Acquire) != 0 {
            // Woken, timed out or interrupted: the loop checks the lock again.
            let _ = futex_wait(&self.0, 2, 100_000_000);
        }
    }
}

/// The reading side of `rwlock_t`: an atomic count of readers. As in the workload, there is no writer.
#[repr(C, align(64))]
pub(crate) struct ReadLock(AtomicU32);

impl ReadLock {
    /// Set by a writer, if there were one.
    const WRITER: u32 = 1 << 31;

    pub(crate) fn with<T>(&self, work: impl FnOnce() -> T) -> T {
        let mut looks = 0;
        // Acquire: pairs with the release below.
        while self.0.fetch_add(1, Ordering::Acquire) & Self::WRITER != 0 {
            self.0.fetch_sub(1, Ordering::Relaxed);
            wait_a_little(&mut looks);
        }
        let value = work();
        self.0.fetch_sub(1, Ordering::Release);
        value
    }
}

/// `atomic_t`, counting references.
#[repr(C, align(64))]
pub(crate) struct Count(AtomicU32);

impl Count {
    pub(crate) fn get(&self) {
        self.0.fetch_add(1, Ordering::Relaxed); // Relaxed: the caller has a reference already.
    }

    /// Drops the reference; `atomic_dec_and_test` orders everything before it.
    pub(crate) fn put(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn wait_a_little(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(SPINS) {
        std::thread::yield_now();
    }
    spin();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    /// A number that several threads may change only under a lock.
    struct Guarded(UnsafeCell<u64>);

    // SAFETY: the tests change it only under a lock, which is what they test.
    unsafe impl Sync for Guarded {}

    fn counts_exactly(with_lock: impl Fn(&dyn Fn()) + Sync) {
        let number = Guarded(UnsafeCell::new(0));
        let number = &number;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        // SAFETY: under the lock.
                        with_lock(&|| unsafe { *number.0.get() += 1 });
                    }
                });
            }
        });
        // SAFETY: the threads have ended.
        assert_eq!(unsafe { *number.0.get() }, 80_000);
    }

    #[test]
    fn a_spinlock_excludes() {
        let lock = SpinLock(AtomicU32::new(0));
        counts_exactly(|work| lock.with(work));
    }

    #[test]
    fn a_mutex_excludes() {
        let lock = Mutex(AtomicU32::new(0));
        counts_exactly(|work| lock.with(work));
    }
}
