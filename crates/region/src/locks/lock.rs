//! [`OwnerLock`]: a lock whose word names the lane that holds it, so that a dead holder is found and
//! repaired.
//!
//! States: `owner = 0` free; `owner = lane` held. One compare-and-swap takes it, a plain store releases it. A
//! waiter names the lock in its own lane, sets `contended`, runs the heavy barrier, checks again and sleeps
//! on the owner word. The holder stores 0, passes a light barrier and reads `contended`. One of the two sees
//! the other (store-load on both sides). Each sleep is bounded, and after it the waiter checks whether the
//! owner's process is alive. If the owner is dead, its intent is replayed first, while all its locks still
//! name it, so that a replay can distinguish them from locks of live lanes. Then a compare-and-swap of the
//! owner word takes the lock over, and the winner repairs what the lock guards.
//!
//! `contended` is a hint, not a count: waiters are found in their lanes. A waiter that gets the lock clears
//! the hint and sets it again if another lane names the lock; nobody can unlock in between, because the
//! waiter holds the lock. The burial of a dead waiter does the same, and wakes a sleeper in case the holder
//! unlocked in between ([`OwnerLock::forget_waiter`]). Progress: blocking for writers, invisible to readers.
//! Source: the kernel's robust futexes (set_robust_list(2)).

use crate::ids::LaneId;
use crate::sync::{
    AtomicU32, LOCK_SPINS, Ordering, futex_wait, futex_wake, heavy_barrier, light_barrier, spin,
};

const SLEEP_NS: u64 = 5_000_000;

/// What a lock needs to know about the region's lanes.
pub trait Lanes {
    /// Whether the thread that owns `lane` is gone.
    fn is_dead(&self, lane: LaneId) -> bool;
    /// The word in which `lane` names the inode whose biased lock it holds.
    fn mark(&self, lane: LaneId) -> &AtomicU32;
    /// Records in `me`'s lane the lock that it waits for; `None` when it no longer waits.
    fn note_wait(&self, me: LaneId, lock: Option<&OwnerLock>);
    /// Whether any lane waits for `lock`.
    fn is_awaited(&self, lock: &OwnerLock) -> bool;
}

/// What a lock asks of the region when its holder has died.
pub trait Undertaker {
    /// The region's lanes.
    fn lanes(&self) -> &dyn Lanes;
    /// Replays the intent that `lane` recorded before it died. Several waiters may call it at once; the
    /// replay is complete when it returns.
    fn replay(&self, _lane: LaneId) {}
    /// Repairs what the lock guards. The caller holds the lock, which it took over from `lane`.
    fn repair(&self, lane: LaneId);
    /// The word in which `lane` names the biased lock of this kind that it holds; see [`crate::bias`].
    fn mark_of(&self, lane: LaneId) -> &AtomicU32 {
        self.lanes().mark(lane)
    }
    /// Whether locks may be biased. They may not while there is a process that cannot revoke a bias.
    fn may_bias(&self) -> bool {
        true
    }
}

/// A lock in the region; see the module.
#[repr(C)]
pub struct OwnerLock {
    owner: AtomicU32,
    contended: AtomicU32,
}

impl OwnerLock {
    /// A free lock.
    pub fn new() -> Self {
        OwnerLock { owner: AtomicU32::new(0), contended: AtomicU32::new(0) }
    }

    /// Makes it a free lock that nobody waits for. Nobody uses it.
    pub fn clear(&self) {
        self.owner.store(0, Ordering::Relaxed); // Relaxed, here and below: nobody uses it.
        self.contended.store(0, Ordering::Relaxed);
    }

    /// Takes the lock for `me`, waiting if it must.
    #[inline]
    pub fn lock(&self, me: LaneId, undertaker: &dyn Undertaker) {
        if !self.try_lock(me) {
            self.lock_slow(me, undertaker);
        }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self, me: LaneId) -> bool {
        // PAIRS: the release store in `unlock`. Relaxed on failure: nothing is read under a lock not taken.
        self.owner.compare_exchange(0, me.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock. The caller holds it.
    #[inline]
    pub fn unlock(&self) {
        // PAIRS: the acquire in `try_lock`.
        self.owner.store(0, Ordering::Release);
        self.wake();
    }

    /// Releases the lock if `dead`, whose lane has been repaired, still holds it.
    #[cold]
    pub fn unlock_for(&self, dead: LaneId) {
        // PAIRS: the acquire in `try_lock`; what the dead wrote came before its death.
        if self.owner.compare_exchange(dead.0, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.wake();
        }
    }

    /// Wakes a waiter, if there is one, of the lock that has just been released.
    #[inline(always)]
    fn wake(&self) {
        // PAIRS: the heavy barrier in `wait_slow`.
        light_barrier();
        if self.is_contended() {
            futex_wake(&self.owner, 1);
        }
    }

    /// Returns a guard that releases the lock when dropped. The caller has just taken the lock.
    #[inline]
    pub fn guard(&self) -> Guard<'_> {
        Guard(self)
    }

    /// The holder of the lock; none if free.
    #[inline]
    pub fn holder(&self) -> LaneId {
        LaneId(self.owner.load(Ordering::Relaxed)) // Relaxed: a hint for repair and for assertions.
    }

    /// Whether an unlock makes a system call to wake a waiter.
    #[inline]
    pub fn is_contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed) != 0 // Relaxed: a hint.
    }

    /// Records that a lane may be waiting.
    fn expect_waiters(&self) {
        self.contended.store(1, Ordering::Relaxed); // Relaxed: ordered by the barriers around it.
    }

    /// Takes the lock like [`OwnerLock::lock`], but leaves the repair to the caller. Returns the dead holder,
    /// if there was one.
    #[inline]
    pub(crate) fn lock_unrepaired(&self, me: LaneId, undertaker: &dyn Undertaker) -> Option<LaneId> {
        if self.try_lock(me) {
            return None;
        }
        self.wait_slow(me, undertaker)
    }

    /// Called when a waiter of this lock has died and its lane no longer names the lock: clears the hint if
    /// no other lane waits.
    #[cold]
    pub fn forget_waiter(&self, lanes: &dyn Lanes) {
        self.withdraw_hint(lanes);
        if self.is_contended() {
            // The holder may have unlocked while the hint was clear.
            futex_wake(&self.owner, 1);
        }
    }

    #[cold]
    fn lock_slow(&self, me: LaneId, undertaker: &dyn Undertaker) {
        if let Some(dead) = self.wait_slow(me, undertaker) {
            undertaker.repair(dead);
        }
    }

    /// Waits until `me` holds the lock; returns the dead holder from which it was taken over.
    #[cold]
    fn wait_slow(&self, me: LaneId, undertaker: &dyn Undertaker) -> Option<LaneId> {
        for _ in 0..LOCK_SPINS {
            spin();
            if self.try_lock(me) {
                return None;
            }
        }
        let lanes = undertaker.lanes();
        lanes.note_wait(me, Some(self));
        let mut dead = None;
        while dead.is_none() {
            self.expect_waiters();
            // PAIRS: the light barrier in `unlock`. Without it a wake may be missed: sleeps are bounded.
            let _ = heavy_barrier();
            if self.try_lock(me) {
                break;
            }
            dead = self.sleep_or_take_over(me, undertaker);
        }
        lanes.note_wait(me, None);
        self.withdraw_hint(lanes);
        dead
    }

    /// Sleeps once; then takes the lock over if its holder is dead, and returns that holder.
    fn sleep_or_take_over(&self, me: LaneId, undertaker: &dyn Undertaker) -> Option<LaneId> {
        // Relaxed: checked again by the futex and the exchange.
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 {
            return None;
        }
        // The loop checks again, however the wait ended.
        let _ = futex_wait(&self.owner, owner, SLEEP_NS);
        if owner != self.owner.load(Ordering::Relaxed) || !undertaker.lanes().is_dead(LaneId(owner)) {
            return None;
        }
        self.take_over(me, LaneId(owner), undertaker).then_some(LaneId(owner))
    }

    /// Takes the lock over from the dead lane `owner`, if that lane still holds it.
    fn take_over(&self, me: LaneId, owner: LaneId, undertaker: &dyn Undertaker) -> bool {
        undertaker.replay(owner);
        // PAIRS: another waiter's attempt at the same takeover; what the dead wrote came before its death.
        self.owner.compare_exchange(owner.0, me.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free or its holder is dead. Never waits for a live holder.
    #[cold]
    pub fn try_lock_or_take_over(&self, me: LaneId, undertaker: &dyn Undertaker) -> bool {
        if self.try_lock(me) {
            return true;
        }
        let owner = self.holder();
        let taken =
            owner.is_some() && undertaker.lanes().is_dead(owner) && self.take_over(me, owner, undertaker);
        if taken {
            undertaker.repair(owner);
        }
        taken
    }

    /// Clears `contended` unless a lane waits. A waiter names the lock first and then sets the hint: either
    /// it is found here, or its store of the hint comes after this one. Without a barrier the hint stays set.
    fn withdraw_hint(&self, lanes: &dyn Lanes) {
        self.contended.store(0, Ordering::Relaxed); // Relaxed: ordered by the barrier.
        if !heavy_barrier() || lanes.is_awaited(self) {
            self.expect_waiters();
        }
    }
}

/// A lock that is held, until this is dropped.
#[must_use = "the lock is given back once the guard is dropped"]
pub struct Guard<'l>(&'l OwnerLock);

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl Default for OwnerLock {
    fn default() -> Self {
        OwnerLock::new()
    }
}
