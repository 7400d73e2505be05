//! Locks on files: the common part of flock(2) and of fcntl(2)'s POSIX and open file description locks.
//!
//! An inode's locks are a list of records under the inode's lock, like Linux's `struct file_lock` in
//! `i_flctx`. An owner's death releases its locks without anybody's help: a lane that meets a conflicting
//! lock checks whether its owner lives. Waiters sleep on the conflicting record for a bounded time and check
//! again.

use lp_abi::{Errno, Result};
use lp_region::lane::Lane;
use lp_region::layout::LOCKS;
use lp_region::life::State;
use lp_region::order;
use lp_region::records::{Inode, LockRecord, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, Ordering, futex_wait, futex_wake};
use lp_region::{FileId, InodeId, InodeRef, LockId, ProcessId};

use crate::caller::task::Task;
use crate::descriptors::named;
use crate::inodes::inode;
use crate::locks::deadlock::Waiting;

/// Values of [`LockRecord::family`].
pub mod family {
    /// Owned by a process, dropped when it closes any descriptor of the file.
    pub const POSIX: u32 = 0;
    /// Owned by an open file.
    pub const OFD: u32 = 1;
    /// flock(2): owned by an open file, always whole.
    pub const FLOCK: u32 = 2;
    /// Not a lock: a record that an operation holds ready.
    pub const NONE: u32 = 3;
}

/// Last byte of a lock that reaches to the end of the file, whatever its length (`OFFSET_MAX`).
pub(crate) const TO_END: u64 = i64::MAX as u64;
/// Longest sleep before a waiter checks again whether owners live and whether a signal came, in nanoseconds.
const SLEEP_NS: u64 = 20_000_000;

/// Shared or exclusive, like `F_RDLCK` and `F_WRLCK`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockType {
    /// `F_RDLCK`, `LOCK_SH`.
    Shared = 0,
    /// `F_WRLCK`, `LOCK_EX`.
    Exclusive = 1,
}

/// Who owns a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// [`family`].
    pub family: u32,
    /// Process or open file.
    pub id: u32,
    /// Generation of its slot.
    pub generation: u32,
}

/// A byte range of a file, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// Last byte; `TO_END` for the end of the file.
    pub end: u64,
}

impl Range {
    /// The whole file.
    pub const WHOLE: Range = Range { start: 0, end: TO_END };

    fn meets(self, other: Range) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Whether the two overlap or are adjacent.
    fn touches(self, other: Range) -> bool {
        self.start <= other.end.saturating_add(1) && other.start <= self.end.saturating_add(1)
    }
}

/// A lock, requested or held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// Its owner.
    pub owner: Owner,
    /// The bytes that it covers.
    pub range: Range,
    /// Its type.
    pub kind: LockType,
    /// The process that requested it, for `l_pid`.
    pub pid: u32,
}

/// Whether to wait for a conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
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

/// Acquires a lock, replacing the owner's locks on the same bytes.
///
/// # Errors
/// `EAGAIN` on a conflict if `wait` is [`Wait::No`]; `EDEADLK`, `EINTR` while waiting; `ENOLCK` without
/// records.
pub(crate) fn acquire(task: &Task, id: InodeId, lock: &Lock, wait: Wait) -> Result<()> {
    let record = task.region.inode(id);
    let (mut looked_at, mut interrupted) = (None, false);
    let mut waiting = Waiting::new(task);
    loop {
        let held = inode::lock(task, id);
        let Some(blocker) = blocker(task, record, lock) else {
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
        if wait == Wait::No {
            return Err(Errno::EAGAIN);
        }
        if interrupted {
            return Err(Errno::EINTR);
        }
        let version = in_way.version.load(Ordering::Acquire);
        in_way.waiters.fetch_add(1, Ordering::Relaxed); // Relaxed: under the inode's lock.
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
    let record = task.region.inode(id);
    let mut looked_at = None;
    loop {
        let found = {
            let _held = inode::lock(task, id);
            blocker(task, record, lock).map(|blocker| read(task.region.lock_record(blocker)))?
        };
        if looked_at == Some(found.owner) {
            return Some(found);
        }
        drop_if_dead(task, id, found.owner);
        looked_at = Some(found.owner);
    }
}

/// The first of the owner's own locks that overlaps `range`.
pub(crate) fn own(task: &Task, id: InodeId, owner: Owner, range: Range) -> Option<Lock> {
    let record = task.region.inode(id);
    let _held = inode::lock(task, id);
    records(task, record)
        .map(|(_, lock)| read(lock))
        .filter(|lock| lock.owner == owner && lock.range.meets(range))
        .min_by_key(|lock| lock.range.start)
}

/// Releases the owner's locks on `range`.
///
/// # Errors
/// `ENOLCK` if a lock must be split and there is no record for its other half.
pub(crate) fn release(task: &Task, id: InodeId, owner: Owner, range: Range) -> Result<()> {
    let record = task.region.inode(id);
    if record.flags.load(Ordering::Relaxed) & inode_flags::LOCKED == 0 {
        return Ok(()); // No lock was ever made.
    }
    let _held = inode::lock(task, id);
    set(task, id, owner, range, None)
}

/// Whether `owner` holds a lock of this type on the whole file.
pub fn holds(task: &Task, id: InodeId, owner: Owner, kind: LockType) -> bool {
    let record = task.region.inode(id);
    if record.flags.load(Ordering::Relaxed) & inode_flags::LOCKED == 0 {
        return false; // No lock was ever made.
    }
    let _held = inode::lock(task, id);
    records(task, record).any(|(_, lock)| {
        let lock = read(lock);
        lock.owner == owner && lock.kind == kind
    })
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
    let _held = inode::lock(task, inode_of(task, id));
    drop_file_locked(task, id);
}

/// [`drop_file_slow`], unless a live thread holds the inode's lock. Returns whether it did.
pub(crate) fn try_drop_file(task: &Task, id: FileId) -> bool {
    let held = inode::lock_unless_held(task, inode_of(task, id));
    if held.is_some() {
        drop_file_locked(task, id);
    }
    held.is_some()
}

fn inode_of(task: &Task, id: FileId) -> InodeId {
    InodeRef::from_word(task.region.file(id).inode.load(Ordering::Relaxed)).id
}

/// [`drop_file_slow`] for a caller that holds the inode's lock.
fn drop_file_locked(task: &Task, id: FileId) {
    let inode = task.region.inode(inode_of(task, id));
    unlink_where(task, inode, |lock| lock.owner.family != family::POSIX && lock.owner.id == id.0);
    task.region.file(id).locked.store(0, Ordering::Relaxed);
}

/// Drops the POSIX locks of a dead process on an inode that it has open, unless a live thread holds the
/// inode's lock. Returns whether none are left.
pub(crate) fn try_drop_dead(task: &Task, id: InodeId, process: ProcessId) -> bool {
    let owner = owner_of_process(task, process);
    try_drop_where(task, id, |lock| lock.owner == owner || lock.owner.family == family::NONE)
}

/// Frees the lock records of an inode that is being freed; dead owners may have left some. Returns whether
/// none are left.
pub(crate) fn try_drop_all(task: &Task, id: InodeId) -> bool {
    try_drop_where(task, id, |_| true)
}

fn try_drop_where(task: &Task, id: InodeId, which: impl Fn(&Lock) -> bool) -> bool {
    let inode = task.region.inode(id);
    if inode.locks.load(Ordering::Relaxed) == 0 {
        return true;
    }
    let held = inode::lock_unless_held(task, id);
    if held.is_some() {
        unlink_where(task, inode, which);
    }
    held.is_some()
}

/// Decodes a record. The caller must hold the inode's lock.
fn read(record: &LockRecord) -> Lock {
    // Relaxed throughout: under the inode's lock.
    Lock {
        owner: Owner {
            family: record.family.load(Ordering::Relaxed),
            id: record.owner.load(Ordering::Relaxed),
            generation: record.owner_generation.load(Ordering::Relaxed),
        },
        range: Range { start: record.start.load(Ordering::Relaxed), end: record.end.load(Ordering::Relaxed) },
        kind: if record.kind.load(Ordering::Relaxed) == 0 { LockType::Shared } else { LockType::Exclusive },
        pid: record.pid.load(Ordering::Relaxed),
    }
}

/// The records of an inode. The caller must hold its lock. Bounded, because a damaged list may be a ring.
fn records<'r>(task: &Task<'r>, inode: &Inode) -> impl Iterator<Item = (LockId, &'r LockRecord)> + use<'r> {
    let region = task.region;
    let mut next = LockId(inode.locks.load(Ordering::Relaxed));
    (0..LOCKS).map_while(move |_| {
        let id = next;
        let record = region.lock_record(id);
        next = LockId(record.link.load(Ordering::Relaxed));
        id.is_some().then_some((id, record))
    })
}

/// The first record that conflicts with `lock`. The caller must hold the inode's lock.
fn blocker(task: &Task, inode: &Inode, lock: &Lock) -> Option<LockId> {
    let blocks = |other: &Lock| {
        let flock = lock.owner.family == family::FLOCK;
        other.owner.family != family::NONE
            && (other.owner.family == family::FLOCK) == flock
            && other.owner != lock.owner
            && other.range.meets(lock.range)
            && (other.kind == LockType::Exclusive || lock.kind == LockType::Exclusive)
    };
    // The lowest, because posix_test_lock walks an owner's locks in order of their starts.
    let in_way = records(task, inode).filter(|(_, record)| blocks(&read(record)));
    in_way.min_by_key(|(_, record)| record.start.load(Ordering::Relaxed)).map(|(id, _)| id)
}

/// Sets the owner's locks on `range` to `lock`, like posix_lock_inode: cuts its other locks out of the range,
/// and merges adjacent ones of the same type. The caller must hold the inode's lock.
fn set(task: &Task, id: InodeId, owner: Owner, range: Range, lock: Option<&Lock>) -> Result<()> {
    let inode = task.region.inode(id);
    // Take the records first, so that nothing fails half-way.
    match records_needed(task, inode, owner, range, lock) {
        0 => {}
        count => hold_ready(task, id, count)?,
    }
    let mut new = range;
    for (id, record) in records(task, inode) {
        let old = read(record);
        if old.owner != owner {
            continue;
        }
        let alike = lock.is_some_and(|lock| lock.kind == old.kind);
        if alike && old.range.touches(new) {
            new = Range { start: new.start.min(old.range.start), end: new.end.max(old.range.end) };
            unset(record);
        } else if old.range.meets(range) {
            cut(task, inode, id, &old, range);
        }
    }
    if let Some(lock) = lock {
        let flags = inode.flags.load(Ordering::Relaxed);
        inode.flags.store(flags | inode_flags::LOCKED, Ordering::Relaxed);
        write(task, inode, &Lock { range: new, ..*lock });
    }
    give_back_unused(task, inode);
    Ok(())
}

/// Number of records that [`set`] takes: one for the other half of a lock that is split, one for the new lock
/// unless an old one of the same owner goes away.
fn records_needed(task: &Task, inode: &Inode, owner: Owner, range: Range, lock: Option<&Lock>) -> usize {
    let (mut split, mut goes) = (false, false);
    for (_, record) in records(task, inode) {
        let old = read(record);
        if old.owner != owner || !old.range.touches(range) {
            continue;
        }
        let alike = lock.is_some_and(|lock| lock.kind == old.kind);
        let (before, after) = (old.range.start < range.start, old.range.end > range.end);
        split |= !alike && before && after;
        goes |= alike || !before && !after;
    }
    usize::from(split) + usize::from(lock.is_some() && !goes)
}

/// Cuts `range` out of the lock in `record`. The caller must hold the inode's lock and a ready record.
fn cut(task: &Task, inode: &Inode, id: LockId, old: &Lock, range: Range) {
    let record = task.region.lock_record(id);
    let before = old.range.start < range.start;
    let after = old.range.end > range.end;
    if before && after {
        write(task, inode, &Lock { range: Range { start: range.end + 1, ..old.range }, ..*old });
    }
    match (before, after) {
        (true, _) => record.end.store(range.start - 1, Ordering::Relaxed),
        (false, true) => record.start.store(range.end + 1, Ordering::Relaxed),
        (false, false) => unset(record),
    }
    wake(record);
}

/// Turns a ready record into a lock. The caller must hold the inode's lock.
fn write(task: &Task, inode: &Inode, lock: &Lock) {
    let ready =
        records(task, inode).find(|(_, record)| record.family.load(Ordering::Relaxed) == family::NONE);
    let Some((_, record)) = ready else { return };
    // Relaxed: under the inode's lock.
    record.start.store(lock.range.start, Ordering::Relaxed);
    record.end.store(lock.range.end, Ordering::Relaxed);
    record.kind.store(lock.kind as u32, Ordering::Relaxed);
    record.owner.store(lock.owner.id, Ordering::Relaxed);
    record.owner_generation.store(lock.owner.generation, Ordering::Relaxed);
    record.pid.store(lock.pid, Ordering::Relaxed);
    record.family.store(lock.owner.family, Ordering::Release);
}

fn unset(record: &LockRecord) {
    record.family.store(family::NONE, Ordering::Release);
    wake(record);
}

/// Wakes the waiters of a lock that has changed. The caller must hold the inode's lock.
fn wake(record: &LockRecord) {
    record.version.fetch_add(1, Ordering::Release);
    if record.waiters.swap(0, Ordering::Relaxed) != 0 {
        futex_wake(&record.version, i32::MAX as u32);
    }
}

/// Links in `count` unused records. The caller must hold the inode's lock.
fn hold_ready(task: &Task, id: InodeId, count: usize) -> Result<()> {
    let inode = task.region.inode(id);
    for _ in 0..count {
        let taken = task.region.take::<LockRecord>(task.lane);
        let Ok(new) = taken else {
            give_back_unused(task, inode);
            return Err(Errno::ENOLCK);
        };
        let record = task.region.lock_record(new);
        record.family.store(family::NONE, Ordering::Relaxed);
        record.waiters.store(0, Ordering::Relaxed);
        record.link.store(inode.locks.load(Ordering::Relaxed), Ordering::Relaxed);
        record.inode.store(id.0, Ordering::Release);
        inode.locks.store(new.0, Ordering::Release);
        task.region.settle::<LockRecord>(task.lane);
    }
    Ok(())
}

fn give_back_unused(task: &Task, inode: &Inode) {
    unlink_where(task, inode, |lock| lock.owner.family == family::NONE);
}

fn drop_where(task: &Task, id: InodeId, which: impl Fn(&Lock) -> bool) {
    let _held = inode::lock(task, id);
    unlink_where(task, task.region.inode(id), which);
}

/// Unlinks and frees records. The caller must hold the inode's lock.
fn unlink_where(task: &Task, inode: &Inode, which: impl Fn(&Lock) -> bool) {
    let mut place: &AtomicU32 = &inode.locks;
    for _ in 0..LOCKS {
        let id = LockId(place.load(Ordering::Relaxed)); // Relaxed: under the inode's lock.
        if id.is_none() {
            return;
        }
        let record = task.region.lock_record(id);
        if which(&read(record)) {
            // The lane names it while no list does.
            task.lane.taken[LockRecord::SLAB].store(id.0, Ordering::Release);
            place.store(record.link.load(Ordering::Relaxed), Ordering::Release);
            wake(record);
            task.region.give::<LockRecord>(task.lane, id);
            task.region.settle::<LockRecord>(task.lane);
        } else {
            place = &record.link;
        }
    }
}

/// Settles a record that a dead lane had in hand: if it is in a list, it stays there. The lane still holds
/// the lock of that list's inode, so nobody else has changed the list since. The caller must hold the lane's
/// `burial`.
pub(crate) fn settle_in_hand(task: &Task, lane: &Lane) {
    let taken = &lane.taken[LockRecord::SLAB];
    let id = LockId(taken.load(Ordering::Acquire));
    if id.is_some() {
        // For a record that was not linked in yet, this is no inode, or one whose list no longer contains it.
        let of = InodeId(task.region.lock_record(id).inode.load(Ordering::Relaxed));
        if records(task, task.region.inode(of)).any(|(listed, _)| listed == id) {
            taken.store(0, Ordering::Release);
        }
    }
}

/// Drops an owner's locks on an inode if the owner is gone: a dead process, or an open file that no live
/// process names. The reaper, possibly another thread's, releases what else the dead hold.
#[cold]
fn drop_if_dead(task: &Task, id: InodeId, owner: Owner) {
    let gone = match owner.family {
        family::POSIX => {
            let process = ProcessId(owner.id);
            let life = task.region.process(process).life.get();
            life.generation() != owner.generation
                || life.state() == State::Free
                || task.region.process_is_dead(process, task.process_id)
        }
        _ => {
            let file = FileId(owner.id);
            let generation = task.region.file(file).generation.load(Ordering::Acquire);
            generation != owner.generation || !named::by_the_living(task, file)
        }
    };
    if gone {
        drop_where(task, id, |lock| lock.owner == owner);
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
    let _held = inode::lock(task, id);
    let waiters = record.waiters.load(Ordering::Relaxed); // Relaxed: under the inode's lock.
    if record.version.load(Ordering::Relaxed) == version && waiters != 0 {
        record.waiters.store(waiters - 1, Ordering::Relaxed);
    }
}
