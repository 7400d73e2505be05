//! [`BiasedLock`]: an [`OwnerLock`] that its sole user takes without an atomic instruction.
//!
//! A lane that has taken the lock [`STREAK`] times in a row is given the bias. From then on it enters by a
//! store to its own mark (the lock's key), a light barrier and a load of the bias. It leaves by clearing the
//! mark. Any other lane takes the inner lock, and revokes the bias if another lane has it: it marks the bias
//! [`REVOKED`], passes the heavy barrier, waits until the mark no longer names this lock, and clears the
//! bias. Store-load on both sides: either the entering lane sees the bias revoked and queues at the inner
//! lock, or the revoker sees its mark and waits.
//!
//! The bias keeps naming the lane until the revoker knows that the lane is outside. If the revoker dies, the
//! inner lock's next holder finds the revocation in progress and waits in its place; only then does it repair
//! what the dead revoker left. If a lane died with its mark set, the revoker repairs its section; a stopped
//! lane is waited for, like the holder of any lock. After a revocation the streak starts far below zero, so
//! two writers of one file do not pay for a revocation at every turn.
//!
//! Linearisation: entering, the second load of the bias; revoking, the load that finds the mark cleared.
//! Progress: blocking. Source: Dice, Moir, Scherer, "Quickly reacquirable locks" (2003); Linux's
//! membarrier(2) for the asymmetry.

use crate::ids::LaneId;
use crate::lock::{OwnerLock, Undertaker};
use crate::sync::{AtomicU32, LOCK_SPINS, Ordering, heavy_barrier, light_barrier, pause, spin};

/// Times in a row that a lane must take the inner lock to be given the bias.
pub const STREAK: u32 = 4;
/// Initial deficit of the streak after a revocation.
const PENALTY: u32 = 256;
/// Set in the bias while it is being revoked. No lane's id has this bit ([`crate::layout::LANE_BITS`]).
pub const REVOKED: u32 = 1 << 31;
/// Checks of the mark of a lane inside, 50 us apart, between two liveness checks.
const PAUSES: u32 = 20;

/// How a [`BiasedLock`] is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Through the bias: the mark names the lock.
    Biased,
    /// Through the inner lock.
    Owned,
}

/// The lock; see the module.
#[repr(C)]
pub struct BiasedLock {
    inner: OwnerLock,
    /// Lane that has the bias; 0 none. Given and revoked under `inner`.
    bias: AtomicU32,
    /// Turns still missing before the bias is given, high half; the lane that takes them, low half. Under
    /// `inner`.
    streak: AtomicU32,
    /// The key that names this lock in a mark; 0 while it may not be biased. Immutable once set.
    key: AtomicU32,
}

impl BiasedLock {
    /// A free lock without a bias.
    pub fn new() -> Self {
        let zero = || AtomicU32::new(0);
        BiasedLock { inner: OwnerLock::new(), bias: zero(), streak: zero(), key: zero() }
    }

    /// Sets the key that names this lock in a mark: from now on it may be biased. No other lock that uses
    /// this mark has the key.
    #[inline]
    pub fn set_key(&self, key: u32) {
        // Relaxed: a lock's key never changes from one value to another.
        self.key.store(key, Ordering::Relaxed);
    }

    /// Takes the lock for `me` by compare-and-swap, revoking another lane's bias.
    #[inline]
    pub fn lock(&self, me: LaneId, undertaker: &dyn Undertaker) {
        let mut dead = self.inner.lock_unrepaired(me, undertaker);
        while !self.is_settled_for(me) && !self.revoke_slow(me, undertaker) {
            // This process has no barriers. Other processes have them, and revoke the bias when they get the
            // lock; meanwhile no bias is given (`Undertaker::may_bias`). This lane must repair what a dead
            // holder left, so it keeps that lock.
            if dead.is_none() {
                self.inner.unlock();
            }
            pause();
            if dead.is_none() {
                dead = self.inner.lock_unrepaired(me, undertaker);
            }
        }
        if let Some(dead) = dead {
            undertaker.repair(dead);
        }
    }

    /// Whether a lane has the bias; a hint.
    #[inline]
    pub fn is_biased(&self) -> bool {
        self.bias.load(Ordering::Relaxed) != 0 // Relaxed: a hint.
    }

    /// Ends the caller's own bias. The caller took the lock with [`BiasedLock::lock`].
    pub fn end_bias(&self) {
        self.bias.store(0, Ordering::Relaxed); // Relaxed: published by unlocking the inner lock.
    }

    /// Takes the lock for `me` if it is free and no other lane has the bias.
    #[inline(always)]
    pub fn try_lock_unbiased(&self, me: LaneId) -> bool {
        if !self.inner.try_lock(me) {
            return false;
        }
        let settled = self.is_settled_for(me);
        if !settled {
            self.inner.unlock();
        }
        settled
    }

    /// Takes the lock for `me` if nobody is inside. Never waits, not even for a stopped process.
    #[cold]
    pub fn try_lock(&self, me: LaneId, undertaker: &dyn Undertaker) -> bool {
        if !self.inner.try_lock(me) {
            return false;
        }
        let bias = self.bias.load(Ordering::Relaxed); // Relaxed: given under the inner lock, which we hold.
        if bias == 0 || bias == me.0 {
            return true;
        }
        if let Some(owner) = self.begin_revocation(bias, me)
            && !self.is_inside(owner, undertaker)
        {
            self.bias.store(0, Ordering::Relaxed); // Relaxed: published by unlocking the inner lock.
            return true;
        }
        // It is inside, or may be, and keeps the bias. If it has queued at the inner lock meanwhile, that
        // does no harm.
        self.bias.store(bias & !REVOKED, Ordering::Relaxed); // Relaxed: published by unlocking the inner lock.
        self.inner.unlock();
        false
    }

    /// Releases what [`BiasedLock::lock`] took.
    #[inline]
    pub fn unlock(&self) {
        self.inner.unlock();
    }

    /// The holder of the inner lock; none if free.
    #[inline]
    pub fn holder(&self) -> LaneId {
        self.inner.holder()
    }

    /// Whether a dead lane holds the lock: the holder of the inner lock is dead, or the inner lock is free
    /// and the lane inside by its bias is dead.
    #[cold]
    pub fn is_left_by_the_dead(&self, undertaker: &dyn Undertaker) -> bool {
        let holder = self.inner.holder();
        if holder.is_some() && !undertaker.lanes().is_dead(holder) {
            return false;
        }
        // Relaxed: a hint; `lock` looks again.
        let owner = LaneId(self.bias.load(Ordering::Relaxed) & !REVOKED);
        owner.is_none() || !self.is_inside(owner, undertaker) || undertaker.lanes().is_dead(owner)
    }

    /// Takes the lock for `me`, without an atomic instruction if `me` has the bias. `mark` is `me`'s own; it
    /// names one section at a time.
    #[inline(always)]
    pub fn enter(&self, me: LaneId, mark: &AtomicU32, undertaker: &dyn Undertaker) -> Hold {
        if self.enter_biased(me, mark) {
            return Hold::Biased;
        }
        self.enter_slow(me, undertaker)
    }

    /// Fast path of [`BiasedLock::enter`], if `me` has the bias; returns whether it has.
    #[inline(always)]
    pub fn enter_biased(&self, me: LaneId, mark: &AtomicU32) -> bool {
        if self.bias.load(Ordering::Relaxed) != me.0 {
            return false;
        }
        mark.store(self.key.load(Ordering::Relaxed), Ordering::Relaxed); // Relaxed: ordered by the barrier.
        // PAIRS: the heavy barrier in `begin_revocation`.
        light_barrier();
        if self.bias.load(Ordering::Relaxed) == me.0 {
            return true;
        }
        mark.store(0, Ordering::Relaxed); // Relaxed: nothing was done under it.
        false
    }

    /// Releases what [`BiasedLock::enter`] took.
    #[inline]
    pub fn leave(&self, hold: Hold, mark: &AtomicU32) {
        match hold {
            // PAIRS: the acquire load of the mark in `is_inside`.
            Hold::Biased => mark.store(0, Ordering::Release),
            Hold::Owned => self.inner.unlock(),
        }
    }

    #[cold]
    fn enter_slow(&self, me: LaneId, undertaker: &dyn Undertaker) -> Hold {
        self.lock(me, undertaker);
        // Relaxed throughout: under the inner lock. Only the low 16 bits of a lane are kept; a mistaken
        // streak is harmless.
        let (turns, lane) = split(self.streak.load(Ordering::Relaxed));
        let turns = if lane == me.0 & 0xffff { turns.saturating_sub(1) } else { turns.max(STREAK) };
        self.streak.store(join(turns, me.0), Ordering::Relaxed);
        if turns == 0 && self.key.load(Ordering::Relaxed) != 0 {
            self.bias.store(me.0, Ordering::Relaxed); // Relaxed: published by unlocking the inner lock.
            // PAIRS: the heavy barrier of a process that forbids biases and then scans all locks.
            light_barrier();
            if !undertaker.may_bias() {
                self.bias.store(0, Ordering::Relaxed); // Relaxed: as above.
            }
        }
        Hold::Owned
    }

    /// Whether no lane but `me` has the bias. The caller holds the inner lock.
    #[inline]
    fn is_settled_for(&self, me: LaneId) -> bool {
        let bias = self.bias.load(Ordering::Relaxed); // Relaxed: given under the inner lock.
        bias == 0 || bias == me.0
    }

    /// Marks the bias revoked, so that the lane that has it, which is returned, no longer enters. `None` if
    /// there is no barrier to make that certain. The caller, `me`, holds the inner lock; it is outside if the
    /// bias is its own.
    fn begin_revocation(&self, bias: u32, me: LaneId) -> Option<LaneId> {
        let owner = LaneId(bias & !REVOKED);
        self.bias.store(bias | REVOKED, Ordering::Relaxed); // Relaxed: ordered by the barrier.
        // PAIRS: the light barrier in `enter_biased`.
        (owner == me || heavy_barrier()).then_some(owner)
    }

    /// Whether `owner` is inside by its bias.
    fn is_inside(&self, owner: LaneId, undertaker: &dyn Undertaker) -> bool {
        // PAIRS: the release in `leave`. What the owner did in its section is visible here.
        undertaker.mark_of(owner).load(Ordering::Acquire) == self.key.load(Ordering::Relaxed)
    }

    /// Takes the bias from its lane and waits until that lane is outside; `false` in a process without
    /// barriers. The bias then stays revoked, and its lane drops it at its next entry.
    #[cold]
    fn revoke_slow(&self, me: LaneId, undertaker: &dyn Undertaker) -> bool {
        let bias = self.bias.load(Ordering::Relaxed); // Relaxed: given under the inner lock, which we hold.
        let Some(owner) = self.begin_revocation(bias, me) else { return false };
        let mut looks = 0u32;
        while self.is_inside(owner, undertaker) {
            looks = looks.wrapping_add(1);
            if looks <= LOCK_SPINS {
                spin();
            } else if !looks.is_multiple_of(PAUSES) {
                pause();
            } else if undertaker.lanes().is_dead(owner) {
                undertaker.replay(owner);
                undertaker.repair(owner);
                break;
            }
        }
        self.bias.store(0, Ordering::Relaxed); // Relaxed: published by unlocking the inner lock.
        self.streak.store(join(PENALTY, 0), Ordering::Relaxed); // Relaxed: under the inner lock.
        true
    }
}

impl Default for BiasedLock {
    fn default() -> Self {
        BiasedLock::new()
    }
}

fn split(streak: u32) -> (u32, u32) {
    (streak >> 16, streak & 0xffff)
}

fn join(turns: u32, lane: u32) -> u32 {
    turns << 16 | lane & 0xffff
}
