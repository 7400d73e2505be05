//! Locks on files: the common part of flock(2) and of fcntl(2)'s POSIX and open file description locks.
//!
//! An inode's locks stand in a tree ([`lock_tree`](crate::locks::lock_tree)) under a lock of their own
//! ([`Inode::locks_lock`](lp_region::records::Inode::locks_lock)), as Linux's `struct file_lock` in the lists
//! of `i_flctx`: who locks a file does not wait for who writes it. A lock is released by its owner's death
//! without anybody's help: who meets one that is in the way looks whether its owner lives. Waiters sleep on
//! the record that is in the way, for a bounded time, and look again.

use lp_abi::{Errno, Result};
use lp_region::lane::Lane;
use lp_region::life::SlotState;
use lp_region::order::{self, LockGuard, Rank};
use lp_region::records::LockRecord;
use lp_region::slab::Slot;
use lp_region::sync::{LOCK_SPINS, Ordering, futex_wait};
use lp_region::{FileId, InodeId, InodeRef, LockId, ProcessId};

use crate::caller::task::Task;
use crate::descriptors::named;
use crate::locks::deadlock::Waiting;
use crate::locks::lock::{ByteRange, Lock, LockType, Owner, family, read, wake};
use crate::locks::lock_tree::{FIRST, Locks};

/// Longest sleep before a waiter checks again whether owners live and whether a signal came, in nanoseconds.
const SLEEP_NS: u64 = 20_000_000;

/// Whether to wait for a conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    /// Fail with `EAGAIN` at once.
    No,
    /// Wait until it is released or a signal arrives.
    Yes,
}

/// The calling process as the owner of POSIX locks.
pub fn process_owner(task: &Task) -> Owner {
    owner_of_process(task, task.process_id)
}

fn owner_of_process(task: &Task, id: ProcessId) -> Owner {
    let generation = task.region.process(id).life.get().generation();
    Owner { family: family::POSIX, id: id.0, generation }
}

/// An open file as the owner of locks of `family`.
pub(crate) fn file_owner(task: &Task, id: FileId, family: u32) -> Owner {
    Owner { family, id: id.0, generation: task.region.file(id).generation.load(Ordering::Relaxed) }
}

/// Whether there may be a lock on an inode: surely if the caller has one.
#[inline]
pub(crate) fn is_locked(task: &Task, id: InodeId) -> bool {
    // Relaxed: a lock of the caller's was made by its own process or an ancestor, so it is seen.
    task.region.inode(id).locks.load(Ordering::Relaxed) != 0
}

/// Takes the lock of an inode's tree of locks.
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
fn lock_tree<'r>(task: &Task<'r>, id: InodeId) -> LockGuard<'r> {
    let lock = &task.region.inode(id).locks_lock;
    let of = order::of(&task.lane.holding);
    order::wait(of, order::what(Rank::FileLocks, lock));
    lock.lock(task.lane_id, task);
    order::keep(of, lock)
}

/// [`lock_tree`], unless a live thread, which may be stopped, holds it.
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
fn lock_tree_unless_held<'r>(task: &Task<'r>, id: InodeId) -> Option<LockGuard<'r>> {
    let lock = &task.region.inode(id).locks_lock;
    if !lock.try_lock_or_take_over(task.lane_id, task) {
        return None;
    }
    let of = order::of(&task.lane.holding);
    order::took(of, order::what(Rank::FileLocks, lock));
    Some(order::keep(of, lock))
}

/// Acquires a lock, replacing the owner's locks on the same bytes.
///
/// # Errors
/// `EAGAIN` on a conflict if `wait` is [`LockWait::No`]; `EDEADLK`, `EINTR` while waiting; `ENOLCK` without
/// records.
pub(crate) fn acquire(task: &Task, id: InodeId, lock: &Lock, wait: LockWait) -> Result<()> {
    let (mut looked_at, mut interrupted) = (None, false);
    let mut waiting = Waiting::new(task);
    loop {
        let held = lock_tree(task, id);
        let Some(blocker) = blocker(&Locks::of(task, id), lock) else {
            let done = set(task, id, lock.owner, lock.range, Some(lock));
            drop(held);
            return done;
        };
        let in_way = task.region.lock_record(blocker);
        let owner = read(in_way).owner;
        if looked_at != Some(owner) {
            drop(held);
            drop_if_dead(task, id, owner);
            looked_at = Some(owner);
            continue;
        }
        if wait == LockWait::No {
            return Err(Errno::EAGAIN);
        }
        if interrupted {
            return Err(Errno::EINTR);
        }
        let version = in_way.version.load(Ordering::Acquire);
        in_way.waiters.fetch_add(1, Ordering::Relaxed); // Relaxed: under the tree's lock.
        drop(held);
        let slept = match lock.owner.family {
            family::POSIX if waiting.closes_ring(blocker, version) => Err(Errno::EDEADLK),
            _ => {
                order::idle(order::of(&task.lane.holding));
                sleep(task, in_way, version)
            }
        };
        wake_up(task, id, in_way, version);
        // A lock that was released before the signal arrived can be had, as in `flock_lock_inode_wait`.
        interrupted = slept == Err(Errno::EINTR);
        if !interrupted {
            slept?;
        }
        looked_at = None;
    }
}

/// The lock that conflicts with `lock`, if any. Dead owners own nothing.
pub(crate) fn conflict(task: &Task, id: InodeId, lock: &Lock) -> Option<Lock> {
    let mut looked_at = None;
    loop {
        let found = {
            let _held = lock_tree(task, id);
            blocker(&Locks::of(task, id), lock).map(|blocker| read(task.region.lock_record(blocker)))?
        };
        if looked_at == Some(found.owner) {
            return Some(found);
        }
        drop_if_dead(task, id, found.owner);
        looked_at = Some(found.owner);
    }
}

/// The first of the owner's own locks that overlaps `range`.
pub(crate) fn own(task: &Task, id: InodeId, owner: Owner, range: ByteRange) -> Option<Lock> {
    let _held = lock_tree(task, id);
    let locks = Locks::of(task, id);
    locks.meeting(range, FIRST).map(|(_, lock)| read(lock)).find(|lock| lock.owner == owner)
}

/// Calls `found` for each lock that `process` has requested through an open file of the inode, in the order
/// of /proc/PID/fdinfo. It may not wait: others want the tree.
pub fn each_through(
    task: &Task,
    id: InodeId,
    file: FileId,
    process: ProcessId,
    mut found: impl FnMut(&Lock),
) {
    if !is_locked(task, id) {
        return;
    }
    let owners = [
        file_owner(task, file, family::FLOCK),
        owner_of_process(task, process),
        file_owner(task, file, family::OFD),
    ];
    let _held = lock_tree(task, id);
    let locks = Locks::of(task, id);
    for owner in owners {
        let all = locks.meeting(ByteRange::ALL, FIRST).map(|(_, record)| read(record));
        all.filter(|lock| lock.owner == owner && lock.through == file).for_each(|lock| found(&lock));
    }
}

/// Calls `found` for each lock of the region, with its inode. Whoever changes a tree and is stopped delays it
/// no longer than a moment: the record is read as it stands.
pub fn each(task: &Task, mut found: impl FnMut(InodeId, &Lock)) {
    for id in task.region.slots::<LockRecord>() {
        let record = task.region.lock_record(id);
        let of = InodeId(record.inode.load(Ordering::Acquire)); // PAIRS: the stores of `Locks`.
        if of.is_none() {
            continue;
        }
        let lock = {
            let _held = (0..LOCK_SPINS).find_map(|_| lock_tree_unless_held(task, of));
            // Relaxed: under the lock, or of a moment.
            (record.inode.load(Ordering::Relaxed) == of.0).then(|| read(record))
        };
        if let Some(lock) = lock.filter(|lock| lock.owner.family != family::SIGNAL)
            && !is_gone(task, lock.owner)
        {
            found(of, &lock);
        }
    }
}

/// Releases the owner's locks on `range`.
///
/// # Errors
/// `ENOLCK` if a lock must be split and there is no record for its other half.
pub(crate) fn release(task: &Task, id: InodeId, owner: Owner, range: ByteRange) -> Result<()> {
    if !is_locked(task, id) {
        return Ok(());
    }
    let _held = lock_tree(task, id);
    set(task, id, owner, range, None)
}

/// Whether `owner` has a lock of this kind.
pub fn holds(task: &Task, id: InodeId, owner: Owner, kind: LockType) -> bool {
    if !is_locked(task, id) {
        return false;
    }
    let _held = lock_tree(task, id);
    let locks = Locks::of(task, id);
    locks
        .meeting(ByteRange::ALL, FIRST)
        .map(|(_, lock)| read(lock))
        .any(|lock| lock.owner == owner && lock.kind == kind)
}

/// Drops the calling process's POSIX locks on an inode.
#[cold]
pub(crate) fn drop_posix(task: &Task, id: InodeId) {
    let owner = process_owner(task);
    drop_where(task, id, |lock| lock.owner == owner);
}

/// Drops the flock and OFD locks of an open file that is being freed.
#[cold]
pub(crate) fn drop_file_slow(task: &Task, id: FileId) {
    let _held = lock_tree(task, inode_of(task, id));
    drop_file_locked(task, id);
}

/// [`drop_file_slow`], unless a live thread holds the tree's lock. Returns whether it did.
pub(crate) fn try_drop_file(task: &Task, id: FileId) -> bool {
    let held = lock_tree_unless_held(task, inode_of(task, id));
    if held.is_some() {
        drop_file_locked(task, id);
    }
    held.is_some()
}

fn inode_of(task: &Task, id: FileId) -> InodeId {
    InodeRef::from_word(task.region.file(id).inode.load(Ordering::Relaxed)).id
}

/// [`drop_file_slow`] for a caller that holds the tree's lock.
fn drop_file_locked(task: &Task, id: FileId) {
    remove_where(task, inode_of(task, id), |lock| {
        lock.owner.family != family::POSIX && lock.owner.id == id.0
    });
    task.region.file(id).locked.store(0, Ordering::Relaxed);
}

/// Drops the POSIX locks of a dead process on an inode that it has open, unless a live thread holds the
/// tree's lock. Returns whether none are left.
pub(crate) fn try_drop_dead(task: &Task, id: InodeId, process: ProcessId) -> bool {
    let owner = owner_of_process(task, process);
    try_drop_where(task, id, |lock| lock.owner == owner)
}

/// Frees the lock records of an inode that is being freed; dead owners may have left some. Returns whether
/// none are left.
pub(crate) fn try_drop_all(task: &Task, id: InodeId) -> bool {
    try_drop_where(task, id, |_| true)
}

fn try_drop_where(task: &Task, id: InodeId, which: impl Fn(&Lock) -> bool) -> bool {
    if !is_locked(task, id) {
        return true;
    }
    let held = lock_tree_unless_held(task, id);
    if held.is_some() {
        remove_where(task, id, which);
    }
    held.is_some()
}

/// The first lock that keeps `lock` from being had. The caller holds the tree's lock.
fn blocker(locks: &Locks, lock: &Lock) -> Option<LockId> {
    let blocks = |other: &Lock| {
        other.owner != lock.owner && (other.kind == LockType::Exclusive || lock.kind == LockType::Exclusive)
    };
    // The lowest: posix_test_lock walks an owner's locks in the order of their starts.
    locks.meeting(lock.range, FIRST).find(|(_, record)| blocks(&read(record))).map(|(id, _)| id)
}

/// What [`set`] finds of the owner's locks.
struct Own {
    /// All that becomes one lock with the new one.
    union: Option<ByteRange>,
    /// A lock that becomes the new one: one that is alike, or one that it covers.
    heir: Option<(LockId, Lock)>,
    /// A lock that reaches over both ends and becomes two.
    split: Option<Lock>,
    /// The first of the others, which are to be cut, and whether there are more.
    other: LockId,
    more: bool,
}

/// Sets the owner's locks on `range` to `lock`, like posix_lock_inode: cuts its other locks out of the range,
/// and merges adjacent ones of the same type. The caller must hold the tree's lock.
fn set(task: &Task, id: InodeId, owner: Owner, range: ByteRange, lock: Option<&Lock>) -> Result<()> {
    let locks = &Locks::of(task, id);
    let own = look(locks, owner, range, lock);
    // What takes a record comes first, so that nothing fails half-way.
    let half = match own.split {
        Some(old) => {
            Some(locks.insert(&Lock { range: ByteRange { start: range.end + 1, ..old.range }, ..old })?)
        }
        None => None,
    };
    let mut stays = LockId::NONE;
    if let Some(lock) = lock {
        let lock = Lock { range: own.union.unwrap_or(range), ..*lock };
        stays = match own.heir {
            Some((heir, old)) => turn_into(task, locks, heir, &old, &lock),
            None => {
                locks.insert(&lock).inspect_err(|_| half.into_iter().for_each(|half| locks.remove(half)))?
            }
        };
    }
    let mut other = own.other;
    while other.is_some() {
        let key = locks.key(other);
        clear(task, locks, other, range, lock);
        // Of the others that `look` found, none comes before this one.
        let is_other = |(id, record): &(LockId, &LockRecord)| {
            let old = read(record);
            old.owner == owner && *id != stays && (is_alike(&old, lock) || old.range.meets(range))
        };
        let next = if own.more { locks.meeting(range.widened(), key).find(is_other) } else { None };
        other = next.map_or(LockId::NONE, |(id, _)| id);
    }
    Ok(())
}

fn is_alike(old: &Lock, lock: Option<&Lock>) -> bool {
    lock.is_some_and(|lock| lock.kind == old.kind)
}

/// Looks through the owner's locks that [`set`] changes.
fn look(locks: &Locks, owner: Owner, range: ByteRange, lock: Option<&Lock>) -> Own {
    let mut own = Own { union: None, heir: None, split: None, other: LockId::NONE, more: false };
    let mine = locks.meeting(range.widened(), FIRST).map(|(id, record)| (id, read(record)));
    for (id, old) in mine.filter(|(_, old)| old.owner == owner) {
        let alike = is_alike(&old, lock);
        if alike {
            own.union = Some(own.union.unwrap_or(range).with(old.range));
        } else if !old.range.meets(range) {
            continue;
        }
        let covered = old.range.start >= range.start && old.range.end <= range.end;
        if own.heir.is_none() && lock.is_some() && (alike || covered) {
            own.heir = Some((id, old));
            continue;
        }
        (own.other, own.more) = if own.other.is_none() { (id, false) } else { (own.other, true) };
        if !alike && old.range.start < range.start && old.range.end > range.end {
            own.split = Some(old);
        }
    }
    own
}

/// Makes a lock of the same owner the new one.
fn turn_into(task: &Task, locks: &Locks, id: LockId, old: &Lock, lock: &Lock) -> LockId {
    let record = task.region.lock_record(id);
    record.pid.store(lock.pid, Ordering::Relaxed);
    if old.range != lock.range {
        locks.reshape(id, lock.range);
    }
    if old.kind != lock.kind {
        // As posix_lock_inode: a lock of another type takes its place, one that is alike only grows.
        record.family.store(family::word(lock.owner.family, lock.through), Ordering::Relaxed);
        record.kind.store(lock.kind as u32, Ordering::Release);
        wake(record);
    }
    id
}

/// Takes `range` out of a lock; all of it if it has become one with the new lock.
fn clear(task: &Task, locks: &Locks, id: LockId, range: ByteRange, lock: Option<&Lock>) {
    let record = task.region.lock_record(id);
    let old = read(record);
    let (before, after) = (old.range.start < range.start, old.range.end > range.end);
    if is_alike(&old, lock) || !before && !after {
        return locks.remove(id);
    }
    let rest = match before {
        true => ByteRange { end: range.start - 1, ..old.range },
        false => ByteRange { start: range.end + 1, ..old.range },
    };
    locks.reshape(id, rest);
    wake(record);
}

fn drop_where(task: &Task, id: InodeId, which: impl Fn(&Lock) -> bool) {
    let _held = lock_tree(task, id);
    remove_where(task, id, which);
}

/// Removes locks. The caller holds the tree's lock.
fn remove_where(task: &Task, id: InodeId, which: impl Fn(&Lock) -> bool) {
    let locks = Locks::of(task, id);
    let mut key = FIRST;
    while let Some((id, _)) = locks.meeting(ByteRange::ALL, key).find(|(_, record)| which(&read(record))) {
        key = locks.key(id);
        locks.remove(id);
    }
}

/// Leaves a record that a dead lane had in hand to the inode that it is a lock on, if it is one. The lane
/// still holds that tree's lock: nobody else has changed the record since. The caller holds the lane's
/// `burial`.
pub(crate) fn settle_in_hand(task: &Task, lane: &Lane) {
    let taken = &lane.taken[LockRecord::SLAB];
    let id = LockId(taken.load(Ordering::Acquire));
    if id.is_some() && task.region.lock_record(id).inode.load(Ordering::Acquire) != 0 {
        taken.store(0, Ordering::Release);
    }
}

/// Drops an owner's locks on an inode if the owner is gone. The reaper, possibly another thread's, releases
/// what else the dead hold.
#[cold]
fn drop_if_dead(task: &Task, id: InodeId, owner: Owner) {
    if is_gone(task, owner) {
        drop_where(task, id, |lock| lock.owner == owner);
    }
}

/// Whether an owner is a dead process, or an open file that no live process names.
fn is_gone(task: &Task, owner: Owner) -> bool {
    match owner.family {
        family::POSIX => {
            let process = ProcessId(owner.id);
            let life = task.region.process(process).life.get();
            life.generation() != owner.generation
                || life.state() == SlotState::Free
                || task.region.process_is_dead(process, task.process_id)
        }
        _ => {
            let file = FileId(owner.id);
            let generation = task.region.file(file).generation.load(Ordering::Acquire);
            generation != owner.generation || !named::by_the_living(task, file)
        }
    }
}

/// Sleeps until the conflicting lock changes, a signal arrives, or it is time to check again.
fn sleep(task: &Task, record: &LockRecord, version: u32) -> Result<()> {
    if task.is_interrupted() {
        return Err(Errno::EINTR);
    }
    match futex_wait(&record.version, version, SLEEP_NS) {
        Err(Errno::EINTR) => Err(Errno::EINTR),
        _ if task.is_interrupted() => Err(Errno::EINTR),
        _ => Ok(()),
    }
}

/// After a sleep: stops counting as a waiter. A changed lock has forgotten its waiters already.
fn wake_up(task: &Task, id: InodeId, record: &LockRecord, version: u32) {
    let _held = lock_tree(task, id);
    let waiters = record.waiters.load(Ordering::Relaxed); // Relaxed: under the tree's lock.
    if record.version.load(Ordering::Relaxed) == version && waiters != 0 {
        record.waiters.store(waiters - 1, Ordering::Relaxed);
    }
}
