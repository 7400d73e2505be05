//! [`OwnerLock`]: a lock whose word names the lane that holds it, so that a dead holder is found and repaired.
//!
//! States: `owner = 0` free; `owner = lane` held. One compare-and-swap takes it, a plain store gives it back.
//! A waiter says so in `waiters`, runs the heavy barrier, looks again and sleeps on the owner word; the holder stores
//! 0, passes a light barrier and looks at `waiters`: one of the two sees the other (store-load on both sides). A
//! sleep is bounded, and after each the waiter asks whether the owner's process lives. What a dead owner wrote down is
//! carried out first, while all its locks still name it, so that a replay can tell them from locks of the living; then the
//! lock is taken over by a compare-and-swap of the owner word, and whoever wins repairs what the lock guards.
//! Progress: blocking for writers, invisible to readers. Source: Bar-Yossef et al., robust futexes (set_robust_list(2)).

use crate::ids::LaneId;
use crate::sync::{
    AtomicU32, LOCK_SPINS, Ordering, futex_wait, futex_wake, heavy_barrier, light_barrier, spin,
};

const SLEEP_NS: u64 = 5_000_000;

/// What a lock asks of the region when its holder does not come back.
pub trait Undertaker {
    /// Whether the process that owns `lane` is gone.
    fn is_dead(&self, lane: LaneId) -> bool;
    /// Carries out what `lane` wrote down before it died. Several waiters may ask at once; it is done once it returns.
    fn replay(&self, _lane: LaneId) {}
    /// Repairs what the lock guards. The caller holds the lock, which it took over from `lane`.
    fn repair(&self, lane: LaneId);
    /// Whether locks may be biased: not while a process that cannot revoke a bias may want one.
    fn may_bias(&self) -> bool {
        true
    }
    /// The word in which `lane` names the biased lock it is in; see [`crate::bias`].
    fn mark(&self, lane: LaneId) -> &AtomicU32;
}

/// A lock in the region; see the module.
#[repr(C)]
pub struct OwnerLock {
    owner: AtomicU32,
    waiters: AtomicU32,
}

impl OwnerLock {
    /// A free lock.
    pub fn new() -> Self {
        OwnerLock { owner: AtomicU32::new(0), waiters: AtomicU32::new(0) }
    }

    /// Takes the lock for `me`, waiting if it must.
    #[inline]
    pub fn lock(&self, me: LaneId, undertaker: &dyn Undertaker) {
        if !self.try_lock(me) {
            self.lock_slow(me, undertaker);
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self, me: LaneId) -> bool {
        // PAIRS: the release store in `unlock`. Relaxed on failure: nothing is read under a lock not taken.
        self.owner.compare_exchange(0, me.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives the lock back. The caller holds it.
    #[inline]
    pub fn unlock(&self) {
        // PAIRS: the acquire in `try_lock`.
        self.owner.store(0, Ordering::Release);
        // PAIRS: the heavy barrier in `lock_slow`.
        light_barrier();
        if self.waiters.load(Ordering::Relaxed) != 0 {
            futex_wake(&self.owner, 1);
        }
    }

    /// Who holds the lock; none if nobody.
    #[inline]
    pub fn holder(&self) -> LaneId {
        LaneId(self.owner.load(Ordering::Relaxed)) // Relaxed: a hint for repair and for assertions.
    }

    #[cold]
    fn lock_slow(&self, me: LaneId, undertaker: &dyn Undertaker) {
        for _ in 0..LOCK_SPINS {
            spin();
            if self.try_lock(me) {
                return;
            }
        }
        self.waiters.fetch_add(1, Ordering::Relaxed); // Relaxed: ordered by the heavy barrier.
        // PAIRS: the light barrier in `unlock`. Where it fails a wake may be missed: sleeps are bounded.
        let _ = heavy_barrier();
        while !self.try_lock(me) {
            let owner = self.owner.load(Ordering::Relaxed); // Relaxed: checked again by the futex and the exchange.
            if owner == 0 {
                continue;
            }
            // However it ends, the loop looks again.
            let _ = futex_wait(&self.owner, owner, SLEEP_NS);
            if owner != self.owner.load(Ordering::Relaxed) || !undertaker.is_dead(LaneId(owner)) {
                continue;
            }
            undertaker.replay(LaneId(owner));
            // PAIRS: another waiter's attempt at the same takeover; what the dead wrote came before its death.
            if self.owner.compare_exchange(owner, me.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                undertaker.repair(LaneId(owner));
                break;
            }
        }
        self.waiters.fetch_sub(1, Ordering::Relaxed); // Relaxed: a count that only asks for wakes.
    }
}

impl Default for OwnerLock {
    fn default() -> Self {
        OwnerLock::new()
    }
}
