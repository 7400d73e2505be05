//! The reaper: releases what dead processes and threads held.
//!
//! Nobody waits for it: a dead process's descriptors block nothing, and its locks are taken over by lanes
//! that want them. It runs when slots are short, when a sweep finds that a dead process holds a candidate,
//! when a parent has waited for the process, and periodically at fork. It does not wait for an inode's lock
//! or a burial that a live thread holds, because that thread may be stopped; the slot is then left for the
//! next reaper.
//!
//! A slot is emptied by the process that changes its word to say so ([`lp_region::life`]), by
//! compare-and-swap of the very word that was found dead. Each step may be repeated after the reaper itself
//! has died. Callers must hold no inode lock.

use core::ptr;

use lp_region::lane::Lane;
use lp_region::life::{Life, SlotState};
use lp_region::records::{Bucket, Dirent, Inode, LockRecord, LongName, Mapping, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeId, InodeRef, LaneId, MappingId, ProcessId, custody, depot};

use crate::caller::directories;
use crate::caller::task::Task;
use crate::content::hand;
use crate::descriptors::file;
use crate::descriptors::table::{FdTable, entry};
use crate::inodes::{inode, make};
use crate::lane::kept::{self, Listed};
use crate::lane::{mount_claim, pin, taken};
use crate::life::{burial, free, grace, home, mapped};
use crate::locks::file_lock;
use crate::names::tree;

/// Reaps the process of a slot if it is dead and no live thread is reaping it. Returns whether this call did.
/// A sweep then frees what it held.
#[cold]
pub(crate) fn process(task: &Task, id: ProcessId) -> bool {
    task.region.left_by_the_dead(id, task.process_id).is_some_and(|life| bury_process(task, id, life))
}

/// Reaps the child `pid`, which has ended: one that was killed, or whose threads were in calls when it
/// exited.
#[cold]
pub fn child(task: &Task, pid: u32) {
    // Relaxed: a slot reused meanwhile names another process, or is live.
    let of = |id: &ProcessId| {
        let process = task.region.process(*id);
        process.pid.load(Ordering::Relaxed) == pid
            && process.pid_namespace.load(Ordering::Relaxed)
                == task.process.pid_namespace.load(Ordering::Relaxed)
    };
    // What it held is left to a later sweep: the parent may be the one who must continue a stopped process.
    if let Some(id) = task.region.processes().find(of) {
        process(task, id);
    }
}

/// Empties a slot whose word is `life`, which the caller has found dead, and frees it. Returns whether it
/// could.
pub fn bury_process(task: &Task, id: ProcessId, life: Life) -> bool {
    // What a dead reaper of the slot had in hand is released once, and before this reaper meets it again.
    let reaper = if life.state() == SlotState::Dying { life.lane() } else { LaneId::NONE };
    if reaper.is_some() && !burial::is_buried(task, reaper) && !bury(task, reaper) {
        return false;
    }
    let Some(dying) = task.region.begin_emptying(id, life, task.lane_id) else { return false };
    if bury_lanes(task, id, LaneId::NONE) && empty(task, id) {
        task.region.free_process(id, dying);
        return true;
    }
    task.region.abandon_emptying(id, dying);
    false
}

/// Buries the lanes of a process except `spared`. Returns false if one must wait for a live thread.
pub(crate) fn bury_lanes(task: &Task, id: ProcessId, spared: LaneId) -> bool {
    let of_process =
        |lane: &LaneId| *lane != spared && task.region.lane(*lane).process.load(Ordering::Acquire) == id.0;
    let mut done = true;
    // Try each, so that all that can be released is.
    for lane in task.region.lanes().filter(of_process) {
        done &= bury(task, lane);
    }
    done
}

/// Closes all descriptors of a process and frees its mappings. Returns false if something must wait for a
/// live thread, or other processes use its directories. The caller must be emptying the slot.
pub(crate) fn empty(task: &Task, id: ProcessId) -> bool {
    let region = task.region;
    let process = region.process(id);
    // Entries are removed without a closer's pin: a scan under way may have passed the table that still holds
    // a copy.
    region.header().moves.fetch_add(1, Ordering::Release);
    let mut done = true;
    for (_, word) in FdTable::of(region, id).entries() {
        let old = word.load(Ordering::Relaxed);
        if old & entry::OPEN == 0 {
            if old != 0 {
                word.store(0, Ordering::Relaxed);
            }
            continue;
        }
        let file = FileId(old as u32);
        let inode = InodeRef::from_word(region.file(file).inode.load(Ordering::Relaxed)).id;
        if process.posix_locks.load(Ordering::Relaxed) != 0 && !file_lock::try_drop_dead(task, inode, id) {
            done = false;
            continue;
        }
        file::leave(task, word, file, 0);
        kept::queue(task, file);
    }
    if done {
        process.fd_limit.store(0, Ordering::Release);
    }
    let is_kept = home::is_in_use(region, id);
    for word in process.places() {
        // Processes that use its directories keep the slot.
        let is_used = is_kept && [&process.cwd, &process.root].into_iter().any(|used| ptr::eq(used, word));
        if !is_used {
            word.store(0, Ordering::Release);
        }
    }
    if is_kept {
        process.pid.store(0, Ordering::Relaxed); // Relaxed: the number may be another process's by now.
    }
    if process.keeper.load(Ordering::Relaxed) == id.0 {
        end_all_kept(task, id);
    }
    let shared = directories::home(region, id);
    if shared != id {
        // It may have been the last that used it.
        self::process(task, shared);
    }
    drop_mappings(task, id) && done && !is_kept
}

/// No thread of a process uses the words of the slot any more ([`crate::life::parted`]).
pub(super) fn end_kept(task: &Task<'_>, slot: ProcessId) {
    // PAIRS: the acquire loads in `home`.
    task.region.process(slot).keeper.store(0, Ordering::Release);
    process(task, slot);
}

/// [`end_kept`] for all slots that threads of a process use; `id` is the calling process, without other
/// threads, or is being emptied by it.
#[cold]
pub(super) fn end_all_kept(task: &Task<'_>, id: ProcessId) {
    let region = task.region;
    let is_of =
        |slot: &ProcessId| *slot != id && region.process(*slot).keeper.load(Ordering::Acquire) == id.0;
    for slot in region.processes().filter(is_of) {
        end_kept(task, slot);
    }
    region.process(id).keeper.store(0, Ordering::Release);
}

/// Frees the mapping records of a process. Returns false if it would have to wait for an inode's lock.
pub(crate) fn drop_mappings(task: &Task, id: ProcessId) -> bool {
    let process = task.region.process(id);
    while let mapping @ MappingId(1..) = MappingId(process.mappings.load(Ordering::Acquire)) {
        let record = task.region.mapping(mapping);
        let of = InodeRef::from_word(record.inode.load(Ordering::Relaxed));
        // The record keeps the inode until it is gone; the lock keeps others from mapping it meanwhile.
        let Some(locked) = inode::lock_unless_held(task, of.id) else { return false };
        task.lane.taken[Mapping::SLAB].store(mapping.0, Ordering::Release);
        process.mappings.store(record.link.load(Ordering::Relaxed), Ordering::Release);
        record.inode.store(0, Ordering::Release);
        task.region.give::<Mapping>(task.lane, mapping);
        task.region.settle::<Mapping>(task.lane);
        if of != InodeRef::NONE {
            mapped::record_gone(task, of);
        }
        drop(locked);
    }
    true
}

/// A mapping record in hand may still be in its process's list; that process's reaper then takes it again.
fn give_back_mapping(task: &Task, record: &Lane) {
    let taken = &record.taken[Mapping::SLAB];
    let id = MappingId(taken.load(Ordering::Acquire));
    if id.is_some() {
        let mapping = task.region.mapping(id);
        let process = task.region.process(ProcessId(mapping.process.load(Ordering::Relaxed)));
        if mapped::lists(task, process, id) {
            taken.store(0, Ordering::Release);
        } else {
            mapping.inode.store(0, Ordering::Release);
        }
    }
    taken::give_back::<Mapping>(task, record);
}

/// Finishes what a dead thread had begun, releases what it had in hand, and frees its lane. Returns false if
/// that must wait for a live thread. Of several callers at once the first does it.
pub(crate) fn bury(task: &Task, lane: LaneId) -> bool {
    let record = task.region.lane(lane);
    if !drop_locks_of_closer(task, record) {
        return false;
    }
    let Some(burial) = burial::lock_burial_unless_held(task, lane) else { return false };
    let first = !burial::is_buried(task, lane);
    if first {
        strip(task, lane);
        burial::leave_graves(task, lane);
        task.region.retire_lane(lane);
    }
    // Not by the record, which its owner may have had no time to number.
    let retired = task.region.lane_id(lane.number());
    drop(burial);
    first && mend_section(task, record) && release(task, retired)
}

/// Frees a stripped lane, unless another burial of it has begun since, which then does so. Returns whether
/// this call did.
fn release(task: &Task, retired: LaneId) -> bool {
    let record = task.region.lane(retired);
    let Some(_burial) = burial::lock_burial_unless_held(task, retired) else { return false };
    let is_own = !burial::is_buried(task, retired);
    if is_own {
        record.holding.store(0, Ordering::Release);
        record.seeking.store(0, Ordering::Release); // A position is one word: there is nothing to repair.
        task.region.release_lane(retired);
    }
    is_own
}

/// close(2) removes the file from the table first and then drops the process's POSIX locks. Finishes that;
/// returns false if a live thread holds the lock of the inode's locks.
fn drop_locks_of_closer(task: &Task, record: &Lane) -> bool {
    let word = record.pins[pin::slot::CLOSE].load(Ordering::Acquire);
    if word == 0 || word & pin::INODE != 0 {
        return true;
    }
    let inode = InodeRef::from_word(task.region.file(FileId(word as u32)).inode.load(Ordering::Relaxed)).id;
    file_lock::try_drop_dead(task, inode, ProcessId(record.process.load(Ordering::Relaxed)))
}

/// Repairs the inode that a dead thread was writing through its bias. Taking the inode's lock does so,
/// because the lane's generation says that its owner is gone. Not done inside the burial, for which the next
/// holder of that lock may wait. Returns false if a live thread holds the lock; the mark stays and tells that
/// thread.
fn mend_section(task: &Task, record: &Lane) -> bool {
    let inside = InodeId(record.holding.load(Ordering::Acquire));
    inside.is_none() || inode::lock_unless_held(task, inside).is_some()
}

/// Cleans a dead thread's lane, except for its caches and lists, which its next owner inherits. The caller
/// must hold `burial`, or own the lane.
pub(crate) fn strip(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    hand::repair(task, lane);
    burial::replay(task, lane);
    file_lock::settle_in_hand(task, record);
    tree::bury(task, lane);
    mount_claim::bury(task, lane);
    task.region.settle_slab::<OpenFile>(record);
    task.region.settle_slab::<Inode>(record);
    settle_list::<OpenFile>(task, record);
    settle_list::<Inode>(task, record);
    grace::settle(record);
    // A blob in hand first: the inode that is being freed may still name it.
    give_back_inode(task, lane);
    settle_claims(task, lane);
    give_back_file(task, lane);
    for slot in [pin::slot::OPEN, pin::slot::CLOSE] {
        let word = record.pins[slot].load(Ordering::Acquire);
        if word & pin::INODE == 0 && word != 0 && !pin::is_stale(task, word) {
            keep_file_again(task, lane, FileId(word as u32));
        }
    }
    grace::hand_over(task, record);
    taken::give_back::<Dirent>(task, record);
    taken::give_back::<Bucket>(task, record);
    taken::give_back::<LongName>(task, record);
    taken::give_back::<LockRecord>(task, record);
    give_back_mapping(task, record);
    for pin in &record.pins {
        pin.store(0, Ordering::Release);
    }
    record.writing_depth.store(0, Ordering::Relaxed);
    record.writing.store(0, Ordering::Release);
    record.changing.store(0, Ordering::Release);
    record.posix_wait.clear();
    forget_wait(task, record);
}

/// Removes the dead thread from the waiters of the lock that it waited for.
fn forget_wait(task: &Task, record: &Lane) {
    let name = record.waits_for.load(Ordering::Relaxed);
    if name != 0 {
        record.waits_for.store(0, Ordering::Relaxed); // Relaxed: ordered by the barrier in `forget_waiter`.
        if let Some(lock) = task.region.lock_at(name) {
            lock.forget_waiter(task);
        }
    }
}

/// Finishes freeing what a dead lane had claimed, or releases the claim.
fn settle_claims(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    let word = record.claims[OpenFile::LIST].load(Ordering::Acquire);
    let file = task.region.file(FileId(word as u32));
    if word != 0 && custody::is_claimed_by(file.custody.get(), lane.0) {
        // If it cannot be freed at this time, it stays in its chain.
        free::empty_file(task, FileId(word as u32), (word >> 32) as u32);
    }
    record.claims[OpenFile::LIST].store(0, Ordering::Release);

    let inode = InodeRef::from_word(record.claims[Inode::LIST].load(Ordering::Acquire));
    let claimed = task.region.inode(inode.id);
    if inode != InodeRef::NONE && custody::is_claimed_by(claimed.custody.get(), lane.0) {
        settle_claimed_inode(task, record, inode);
    }
    record.claims[Inode::LIST].store(0, Ordering::Release);
}

/// Turns an inode that a dead lane was freeing into a husk in that lane's chain. Nothing goes straight to the
/// slab, because a second caller could not tell that it is there.
fn settle_claimed_inode(task: &Task, record: &Lane, inode: InodeRef) {
    let claimed = task.region.inode(inode.id);
    // An inode in hand has its next generation already.
    let in_hand = record.taken[Inode::SLAB].load(Ordering::Acquire) == inode.id.0;
    let is_same = free::is_unlinked(task, inode);
    if !(in_hand || is_same && file_lock::try_drop_all(task, inode.id)) {
        return claimed.custody.unclaim();
    }
    if is_same {
        make::clear(task, inode.id);
        claimed.generation.store(inode.generation.wrapping_add(1), Ordering::Release);
    }
    // Until it is in the chain.
    record.unlisting[Inode::LIST].store(inode.id.0, Ordering::Release);
    claimed.custody.keep_husk(record.id.load(Ordering::Relaxed));
    settle_list::<Inode>(task, record);
    if in_hand {
        record.taken[Inode::SLAB].store(0, Ordering::Release);
    }
}

/// Puts back what a dead lane was removing from its chain, and links in what it was adding.
fn settle_list<T: Listed>(task: &Task, record: &Lane) {
    let unlisting = record.unlisting[T::LIST].load(Ordering::Acquire);
    if unlisting != 0 {
        let custody = task.region.slot::<T>(unlisting).custody();
        let frees = record.claims[T::LIST].load(Ordering::Acquire) as u32 == unlisting;
        if !frees && custody::is_claimed_by(custody.get(), record.id.load(Ordering::Relaxed)) {
            custody.unclaim();
        }
        link_in_again::<T>(task, record, unlisting);
    }
    record.unlisting[T::LIST].store(0, Ordering::Release);
}

/// Links in a record that a dead lane keeps, if it is not in its chain.
fn link_in_again<T: Listed>(task: &Task, record: &Lane, index: u32) {
    let own = record.id.load(Ordering::Relaxed);
    let kept = custody::is_kept_by(task.region.slot::<T>(index).custody().get(), own);
    if kept && !kept::chain::<T>(task.region, record).any(|listed| listed == index) {
        kept::link_in::<T>(task.region, record, index);
    }
}

/// Has a record that was in a dead lane's hand examined, however far that lane had come with it.
fn keep_again<T: Listed>(task: &Task, record: &Lane, index: u32) {
    if !depot::is_cached::<T>(record, index) {
        link_in_again::<T>(task, record, index);
        kept::keep::<T>(task, record, index);
    }
}

/// An inode in hand was being created, so that nothing names it; or had just lost its last link; or was being
/// freed.
fn give_back_inode(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    let id = InodeId(record.taken[Inode::SLAB].load(Ordering::Acquire));
    let custody = task.region.inode(id).custody.get();
    if id.is_some() && custody::is_claimed_by(custody, lane.0) {
        return; // `settle_claims` handles it.
    }
    let is_root = task.region.header().roots.iter().any(|root| root.load(Ordering::Relaxed) == id.0);
    if id.is_some()
        && !is_root
        && !put_back_husk::<Inode>(task, record, id.0)
        && !depot::is_cached::<Inode>(record, id.0)
    {
        task.region.inode(id).nlink.store(0, Ordering::Relaxed);
        keep_again::<Inode>(task, record, id.0);
    }
    record.taken[Inode::SLAB].store(0, Ordering::Release);
}

/// [`keep_again`] of an open file. If the table of a later image holds it by its only descriptor, its close
/// must no longer free it.
fn keep_file_again(task: &Task, lane: LaneId, id: FileId) {
    let record = task.region.lane(lane);
    if !depot::is_cached::<OpenFile>(record, id.0) && !grace::keeps(task.region, lane, id) {
        let file = task.region.file(id);
        file::share(file);
        keep_again::<OpenFile>(task, record, id.0);
        file.closed_by.store(0, Ordering::Release); // PAIRS: the acquire in `grace::keeps`: it is kept.
    }
}

/// An open file in hand may have a name or not; a sweep determines which.
fn give_back_file(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    let id = FileId(record.taken[OpenFile::SLAB].load(Ordering::Acquire));
    if id.is_some() && !put_back_husk::<OpenFile>(task, record, id.0) {
        keep_file_again(task, lane, id);
    }
    record.taken[OpenFile::SLAB].store(0, Ordering::Release);
}

/// Returns a husk in hand to the lane's chain if it was taken out. Returns whether it is a husk.
fn put_back_husk<T: Listed>(task: &Task, record: &Lane, index: u32) -> bool {
    let is_husk = task.region.slot::<T>(index).custody().get() & custody::HUSK != 0;
    if is_husk {
        link_in_again::<T>(task, record, index);
    }
    is_husk
}
