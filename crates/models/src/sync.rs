//! `lp_region::sync` with loom's atomics.

use std::cell::Cell;

pub use loom::sync::atomic::Ordering;
use loom::sync::atomic::fence;
use lp_abi::{Errno, Result};

/// An ordering that a model can be run without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weaken {
    /// Nothing: the code as it ships.
    Nothing,
    /// Release stores and exchanges become relaxed.
    Release,
    /// Acquire loads and exchanges become relaxed.
    Acquire,
    /// The release fence does nothing.
    ReleaseFence,
    /// The acquire fence does nothing.
    AcquireFence,
    /// The full fence does nothing.
    FullFence,
    /// The light barrier does nothing.
    LightBarrier,
}

std::thread_local! {
    // loom runs all threads of a model on the thread that called it.
    static WEAKEN: Cell<Weaken> = const { Cell::new(Weaken::Nothing) };
    static BOUNDED: Cell<bool> = const { Cell::new(false) };
    static EXHAUSTIVE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Whether `model` fails when it runs without `weaken`.
pub fn weakened(weaken: Weaken, model: impl Fn() + Sync + Send + 'static) -> bool {
    WEAKEN.set(weaken);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(model)));
    WEAKEN.set(Weaken::Nothing);
    outcome.is_err()
}

/// Runs `model` in all its interleavings, up to three preemptions or the number that [`exhaustively`] sets.
pub fn check(model: impl Fn() + Sync + Send + 'static) {
    check_up_to(EXHAUSTIVE.get().unwrap_or(3), model);
}

/// [`check`] with up to so many preemptions, for models of many steps.
pub fn check_up_to(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs `models` with up to `preemptions` preemptions, interleaving every operation of one thread with every
/// one of another. On its own, loom interleaves only operations on the same word, and remembers only the last
/// access to a word: an exchange after a load by the same thread hides that load from it.
pub fn exhaustively<T>(preemptions: usize, models: impl FnOnce() -> T) -> T {
    EXHAUSTIVE.set(Some(preemptions));
    let outcome = models();
    EXHAUSTIVE.set(None);
    outcome
}

loom::lazy_static! {
    static ref CLOCK: loom::sync::atomic::AtomicU32 = loom::sync::atomic::AtomicU32::new(0);
}

/// All threads access this word, without ordering.
fn tick() {
    if EXHAUSTIVE.get().is_some() {
        CLOCK.fetch_add(1, Ordering::Relaxed);
    }
}

fn is_weak(what: Weaken) -> bool {
    WEAKEN.get() == what
}

fn effective(ordering: Ordering) -> Ordering {
    match ordering {
        Ordering::Release if is_weak(Weaken::Release) => Ordering::Relaxed,
        Ordering::Acquire if is_weak(Weaken::Acquire) => Ordering::Relaxed,
        Ordering::AcqRel if is_weak(Weaken::Release) => Ordering::Acquire,
        Ordering::AcqRel if is_weak(Weaken::Acquire) => Ordering::Release,
        other => other,
    }
}

macro_rules! atomics {
    ($($name:ident $word:ty;)*) => {$(
        /// Like `core`'s, but based on loom's.
        #[derive(Debug, Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// A new word.
            pub fn new(value: $word) -> Self {
                $name(loom::sync::atomic::$name::new(value))
            }

            /// Loads.
            pub fn load(&self, order: Ordering) -> $word {
                tick();
                self.0.load(effective(order))
            }

            /// Stores.
            pub fn store(&self, value: $word, order: Ordering) {
                burn();
                tick();
                self.0.store(value, effective(order));
            }

            /// Adds.
            pub fn fetch_add(&self, value: $word, order: Ordering) -> $word {
                tick();
                self.0.fetch_add(value, effective(order))
            }

            /// Sets bits.
            pub fn fetch_or(&self, value: $word, order: Ordering) -> $word {
                tick();
                self.0.fetch_or(value, effective(order))
            }

            /// Subtracts.
            pub fn fetch_sub(&self, value: $word, order: Ordering) -> $word {
                tick();
                self.0.fetch_sub(value, effective(order))
            }

            /// Compares and exchanges.
            pub fn compare_exchange(&self, old: $word, new: $word, yes: Ordering, no: Ordering)
                -> std::result::Result<$word, $word>
            {
                burn();
                tick();
                self.0.compare_exchange(old, new, effective(yes), effective(no))
            }
        }
    )*};
}

atomics! {
    AtomicU32 u32;
    AtomicU64 u64;
}

loom::thread_local! {
    static FUSE: Cell<Option<u32>> = Cell::new(None);
}

/// Panic payload that unwinds a [mortal](mortal) thread at its death.
struct Died;

/// Runs `call` until its thread has made `steps` stores or exchanges, and then acts as if it were killed.
/// Returns whether it survived.
pub fn mortal(steps: u32, call: impl FnOnce()) -> bool {
    FUSE.with(|fuse| fuse.set(Some(steps)));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    FUSE.with(|fuse| fuse.set(None));
    match outcome {
        Ok(()) => true,
        Err(cause) if cause.is::<Died>() => false,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}

fn burn() {
    let left = FUSE.with(Cell::get);
    match left {
        Some(0) => std::panic::resume_unwind(Box::new(Died)),
        Some(left) => FUSE.with(|fuse| fuse.set(Some(left - 1))),
        None => {}
    }
}

/// Models go straight to sleep, which is the difficult part.
pub const LOCK_SPINS: u32 = 0;

/// A model has no membarrier: a full fence on both sides allows the same outcomes as the asymmetric pair.
pub fn light_barrier() {
    if !is_weak(Weaken::LightBarrier) {
        fence(Ordering::SeqCst);
    }
}

loom::thread_local! {
    static DENIED: Cell<bool> = Cell::new(false);
}

/// From here on the calling thread belongs to a process that a filter denies membarrier(2).
pub fn deny_barriers() {
    DENIED.with(|denied| denied.set(true));
}

/// See [`light_barrier`].
pub fn heavy_barrier() -> bool {
    let passes = !DENIED.with(Cell::get);
    if passes {
        fence(Ordering::SeqCst);
    }
    passes
}

/// A release fence.
pub fn release_fence() {
    if !is_weak(Weaken::ReleaseFence) {
        fence(Ordering::Release);
    }
}

/// An acquire fence.
pub fn acquire_fence() {
    if !is_weak(Weaken::AcquireFence) {
        fence(Ordering::Acquire);
    }
}

/// A full fence.
pub fn full_fence() {
    if !is_weak(Weaken::FullFence) {
        fence(Ordering::SeqCst);
    }
}

/// Lets another thread run, like a short sleep.
pub fn pause() {
    spin();
}

/// Lets another thread run.
pub fn spin() {
    loom::thread::yield_now();
}

/// Runs `model` with sleeps that time out at once.
pub fn check_bounded(model: impl Fn() + Sync + Send + 'static) {
    BOUNDED.set(true);
    check(model);
    BOUNDED.set(false);
}

/// Sleeps; outside [`check_bounded`] without a time limit, so that a lost wake is a deadlock that the model
/// reports.
pub fn futex_wait(word: &AtomicU32, expected: u32, _nanoseconds: u64) -> Result<()> {
    if BOUNDED.get() {
        spin();
        return Err(Errno::ETIMEDOUT);
    }
    futex::wait(word, expected)
}

/// Wakes the sleepers.
pub fn futex_wake(_word: &AtomicU32, _count: u32) {
    futex::wake();
}

mod futex {
    //! One wait queue for all words: a wake for another word is a spurious wake, which callers must tolerate
    //! anyway.

    use super::{AtomicU32, Errno, Ordering, Result};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref QUEUE: (Mutex<u32>, Condvar) = (Mutex::new(0), Condvar::new());
    }

    pub(super) fn wait(word: &AtomicU32, expected: u32) -> Result<()> {
        let queue = QUEUE.0.lock().expect("a model thread panicked");
        // The kernel compares under the queue's lock, with a full barrier (futex(2)).
        loom::sync::atomic::fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) != expected {
            return Err(Errno::EAGAIN);
        }
        drop(QUEUE.1.wait(queue).expect("a model thread panicked"));
        Ok(())
    }

    pub(super) fn wake() {
        let _queue = QUEUE.0.lock().expect("a model thread panicked");
        QUEUE.1.notify_all();
    }
}
