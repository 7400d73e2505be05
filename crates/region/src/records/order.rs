//! The order of locks, checked: debug builds and the feature `order` keep a stack of what each lane holds and
//! panic where a lane waits for a lock out of its turn, with both places. Other builds have none of this.
//!
//! `docs/locking.md` draws the order. A lane that takes a lock by try waits for nobody and may have it at any
//! time. [`wait`] is called before a lock is waited for, [`took`] after one is taken by try, [`gave`] when
//! either is given back, and [`idle`] before a wait for something that is no lock.

use crate::lock::{Guard, OwnerLock};
use crate::records::Inode;
use crate::sync::AtomicU32;

/// What a lane holds, outermost first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// The mount-writer mark. Never waited for with a lock held.
    Writing,
    /// The position of an open file.
    Position,
    /// A directory; below it, directories that it holds.
    Directory,
    /// Another inode; the lower number first.
    Inode,
    /// The locks on a file.
    FileLocks,
    /// A process's descriptor table.
    Table,
    /// The split of hash buckets, taken by try only.
    Split,
    /// The burial of a dead lane: whoever meets a dead holder begins one, whatever he holds. In it he waits
    /// for burials only.
    Burial,
}

/// A lock that a lane takes: its rank, where it lies, and which of its rank it is.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(debug_assertions, feature = "order")), expect(dead_code, reason = "nothing is checked"))]
pub struct LockRef {
    rank: Rank,
    at: usize,
    number: u32,
    /// The directory that holds it, if it is one.
    parent: u32,
}

/// The lock, or mark, of `rank` at `at`.
#[inline(always)]
pub fn what<T>(rank: Rank, at: &T) -> LockRef {
    LockRef { rank, at: core::ptr::from_ref(at) as usize, number: 0, parent: 0 }
}

/// Whose stack is meant: a lane's. Nothing where nothing is checked.
#[derive(Clone, Copy)]
pub struct Of {
    #[cfg(any(debug_assertions, feature = "order"))]
    mark: usize,
}

/// The lane with this mark ([`crate::lane::Lane::holding`]).
#[inline(always)]
pub fn of(_mark: &AtomicU32) -> Of {
    Of {
        #[cfg(any(debug_assertions, feature = "order"))]
        mark: core::ptr::from_ref(_mark) as usize,
    }
}

/// Says that a lane has given a lock back, once this is dropped.
struct Until {
    #[cfg(any(debug_assertions, feature = "order"))]
    of: Of,
    #[cfg(any(debug_assertions, feature = "order"))]
    at: usize,
}

#[cfg(any(debug_assertions, feature = "order"))]
impl Drop for Until {
    fn drop(&mut self) {
        check::give(self.of, self.at);
    }
}

/// A lock that is held until this is dropped.
#[must_use = "the lock is given back once this is dropped"]
pub struct LockGuard<'l> {
    _guard: Guard<'l>,
    _until: Until,
}

/// Keeps a lock that the lane has taken.
#[inline(always)]
pub fn keep(_of: Of, lock: &OwnerLock) -> LockGuard<'_> {
    let until = Until {
        #[cfg(any(debug_assertions, feature = "order"))]
        of: _of,
        #[cfg(any(debug_assertions, feature = "order"))]
        at: core::ptr::from_ref(lock) as usize,
    };
    LockGuard { _guard: lock.guard(), _until: until }
}

#[cfg(not(any(debug_assertions, feature = "order")))]
mod check {
    use super::*;

    /// The lane is about to wait for `what`, and has it then.
    #[inline(always)]
    pub fn wait(_lane: Of, _what: LockRef) {}

    /// The lane has taken `what` without waiting.
    #[inline(always)]
    pub fn took(_lane: Of, _what: LockRef) {}

    /// The lane gives back what lies at `at`.
    #[inline(always)]
    pub fn gave<T>(_lane: Of, _at: &T) {}

    /// The lane holds no lock: it is about to wait for somebody.
    #[inline(always)]
    pub fn idle(_lane: Of) {}

    /// The lane has a new owner, who holds nothing.
    #[inline(always)]
    pub fn begin(_lane: Of) {}

    /// The lock of inode `number`.
    #[inline(always)]
    pub fn inode(inode: &Inode, _number: u32) -> LockRef {
        what(Rank::Inode, inode)
    }
}

#[cfg(any(debug_assertions, feature = "order"))]
mod check {
    use core::cell::UnsafeCell;
    use core::panic::Location;

    use super::*;
    use crate::sync::{AtomicU64, Ordering};

    /// Locks that a lane holds at a time, at most.
    const DEEP: usize = 16;
    /// Lanes of a process that are looked after; those that come later are not.
    const LANES: usize = 1024;

    type HeldLock = (LockRef, &'static Location<'static>);

    struct Stack {
        /// Address of the lane's mark; 0 nobody's.
        lane: AtomicU64,
        held: UnsafeCell<[Option<HeldLock>; DEEP]>,
    }

    // SAFETY: one thread at a time has a lane, and with it the lane's stack.
    unsafe impl Sync for Stack {}

    static STACKS: [Stack; LANES] =
        [const { Stack { lane: AtomicU64::new(0), held: UnsafeCell::new([None; DEEP]) } }; LANES];

    /// Applies `to` to a lane's stack.
    fn with<T>(lane: Of, to: impl FnOnce(&mut [Option<HeldLock>; DEEP]) -> T) -> Option<T> {
        let lane = lane.mark as u64;
        let is_its = |stack: &&Stack| {
            let taken = stack.lane.compare_exchange(0, lane, Ordering::AcqRel, Ordering::Acquire);
            taken.is_ok() || taken == Err(lane)
        };
        // The search starts where no other lane's does as a rule.
        let start = lane as usize / crate::layout::LANE_SIZE % LANES;
        let (before, from) = STACKS.split_at(start);
        let stack = from.iter().chain(before).find(is_its)?;
        // SAFETY: the lane is the calling thread's, and `to` does not come back here.
        Some(to(unsafe { &mut *stack.held.get() }))
    }

    /// The lane is about to wait for `what`, and has it then.
    ///
    /// # Panics
    /// When the lane holds something that comes after it.
    #[track_caller]
    pub fn wait(lane: Of, what: LockRef) {
        let held = with(lane, |held| *held).unwrap_or_default();
        for (of, at) in held.iter().flatten() {
            assert!(
                may_follow(of, &what),
                "lock order: {what:?} is waited for at {} with {of:?} held, which was taken at {at}",
                Location::caller(),
            );
        }
        took(lane, what);
    }

    /// Whether a lane that holds `held` may wait for `wanted`.
    fn may_follow(held: &LockRef, wanted: &LockRef) -> bool {
        if held.at == wanted.at {
            return false;
        }
        match (held.rank, wanted.rank) {
            (Rank::Directory, Rank::Directory) => wanted.parent == held.number,
            (Rank::Inode, Rank::Inode) => held.number < wanted.number,
            (Rank::Burial, Rank::Burial) => true,
            (held, wanted) => held < wanted,
        }
    }

    /// The lane has taken `what` without waiting.
    ///
    /// # Panics
    /// When it holds more than any call does.
    #[track_caller]
    pub fn took(lane: Of, what: LockRef) {
        let place = Location::caller();
        with(lane, |held| match held.iter_mut().find(|entry| entry.is_none()) {
            Some(entry) => *entry = Some((what, place)),
            None => panic!("lock order: {held:?} are held, and now {what:?} at {place}"),
        });
    }

    /// The lane gives back what lies at `at`.
    pub fn gave<T>(lane: Of, at: &T) {
        give(lane, core::ptr::from_ref(at) as usize);
    }

    pub(super) fn give(lane: Of, at: usize) {
        with(lane, |held| {
            // What was taken last, should a mark be nested.
            if let Some(entry) = held.iter_mut().rev().find(|entry| entry.is_some_and(|(of, _)| of.at == at))
            {
                *entry = None;
            }
        });
    }

    /// The lane holds no lock: it is about to wait for somebody.
    ///
    /// # Panics
    /// When it does.
    #[track_caller]
    pub fn idle(lane: Of) {
        let held = with(lane, |held| *held).unwrap_or_default();
        for (of, at) in held.iter().flatten() {
            let here = Location::caller();
            assert!(
                of.rank == Rank::Writing,
                "lock order: a wait at {here} with {of:?} held, which was taken at {at}"
            );
        }
    }

    /// The lane has a new owner, who holds nothing.
    pub fn begin(lane: Of) {
        with(lane, |held| *held = [None; DEEP]);
    }

    /// The lock of inode `number`.
    pub fn inode(inode: &Inode, number: u32) -> LockRef {
        use lp_abi::linux::{S_IFDIR, S_IFMT};
        // Relaxed, both: the type does not change, and the parent of a locked directory's entry does not
        // either.
        let is_dir = inode.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR;
        let rank = if is_dir { Rank::Directory } else { Rank::Inode };
        let parent = inode.parent.load(Ordering::Relaxed);
        LockRef { number, parent, ..what(rank, inode) }
    }
}

pub use check::*;
