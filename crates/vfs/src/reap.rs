//! The reaper: gives back what dead processes and threads held.
//!
//! Nobody waits for it: a dead process's descriptors keep nothing from working, its locks are taken over by whoever wants
//! them. It runs when slots are short, when a dead process is found to hold an orphan, and once in a while at fork.
//! Each step may be done again after the reaper itself has died: the slot stays dying and names the reaper's lane.
//! Called with no inode locked.

use lp_region::depot;
use lp_region::lane::Lane;
use lp_region::layout::FDS;
use lp_region::process::process_state as state;
use lp_region::records::{Bucket, Dirent, Inode, LockRecord, LongName, Mapping, OpenFile, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeId, InodeRef, LaneId, LockId, MappingId, ProcessId};

use crate::table::entry;
use crate::task::Task;
use crate::{file, inode, intent, lock, mapping, page, pin, reclaim};

/// Cleans up after all processes that are dead; gives their number.
#[cold]
pub fn dead(task: &Task) -> u32 {
    let mut reaped = 0;
    for id in task.region.processes() {
        if task.region.process_is_dead(id, task.process_id) && process(task, id) {
            reaped += 1;
        }
    }
    reaped
}

/// Cleans up after a dead process; whether this call did it and not somebody else.
#[cold]
pub fn process(task: &Task, id: ProcessId) -> bool {
    // Before any burial: a reclaim that holds this lock may have to wait for one.
    let exclusive = reclaim::Exclusive::wait(task);
    if !claim(task, id) {
        return false;
    }
    let mut unlinked = 0;
    for lane in task.region.lanes() {
        let record = task.region.lane(lane);
        if record.process.load(Ordering::Relaxed) == id.0 {
            bury(task, lane);
            unlinked += record.unlinked.count.load(Ordering::Relaxed); // Relaxed: a hint.
        }
    }
    let held = empty(task, id);
    task.region.release_process(id);
    drop(exclusive);
    if held == Held::Inodes || unlinked != 0 {
        reclaim::run(task);
    }
    true
}

/// What a process held when it was emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// Nothing that a reclaim frees.
    Nothing,
    /// Names of inodes: a reclaim may free some now.
    Inodes,
}

/// Makes the calling thread the one that cleans up after `id`, which is dead. The caller has [`reclaim::Exclusive`].
fn claim(task: &Task, id: ProcessId) -> bool {
    let process = task.region.process(id);
    let reaper = process.reaper.load(Ordering::Acquire);
    let left = reaper != 0 && task.region.lane_is_dead(LaneId(reaper), task.process_id);
    if reaper != 0 && !left
        || process
            .reaper
            .compare_exchange(reaper, task.lane_id.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
    {
        return false;
    }
    // The reaper is named first: whoever finds the slot dying knows whom to ask for.
    let seen = process.state.load(Ordering::Acquire);
    let mine = match seen {
        state::DYING => true,
        state::FREE => false,
        _ => process.state.compare_exchange(seen, state::DYING, Ordering::AcqRel, Ordering::Relaxed).is_ok(),
    };
    if !mine {
        process.reaper.store(0, Ordering::Release);
    }
    mine
}

/// Closes everything that a process has and gives back its mappings. The process is dead or never lived, or is the
/// caller's own.
pub(crate) fn empty(task: &Task, id: ProcessId) -> Held {
    let region = task.region;
    let process = region.process(id);
    // Entries go without a closer's care: a scan under way may have passed the table that still holds a copy.
    region.header().moves.fetch_add(1, Ordering::Release);
    let limit = process.fd_limit.load(Ordering::Acquire) as usize;
    let mut orphans = false;
    for word in region.fd_table(id).iter().take(limit.min(FDS)) {
        let old = word.load(Ordering::Relaxed);
        if old & entry::OPEN != 0 {
            let file = FileId(old as u32);
            orphans = true;
            let inode = InodeRef::from_word(region.file(file).inode.load(Ordering::Relaxed)).id;
            if process.posix_locks.load(Ordering::Relaxed) != 0 {
                lock::drop_dead(task, inode, id);
            }
            file::leave(task, word, file, 0);
            reclaim::queue(task, file);
        } else if old != 0 {
            word.store(0, Ordering::Relaxed);
        }
    }
    process.fd_limit.store(0, Ordering::Release);
    orphans |= drop_mappings(task, id) == Held::Inodes;
    for word in [&process.cwd, &process.exe] {
        orphans |= is_orphan(task, InodeRef::from_word(word.swap(0, Ordering::AcqRel)));
    }
    if orphans { Held::Inodes } else { Held::Nothing }
}

/// Gives back the mapping records of a process.
pub(crate) fn drop_mappings(task: &Task, id: ProcessId) -> Held {
    let process = task.region.process(id);
    let mut orphans = false;
    while let mapping @ MappingId(1..) = MappingId(process.mappings.load(Ordering::Acquire)) {
        let record = task.region.mapping(mapping);
        let of = InodeRef::from_word(record.inode.load(Ordering::Relaxed));
        // The record keeps the inode until it is gone; the lock keeps others from mapping it meanwhile.
        let locked = inode::lock(task, of.id);
        task.lane.taken[Mapping::SLAB].store(mapping.0, Ordering::Release);
        process.mappings.store(record.link.load(Ordering::Relaxed), Ordering::Release);
        record.inode.store(0, Ordering::Release);
        task.region.give::<Mapping>(task.lane, mapping);
        task.region.settle::<Mapping>(task.lane);
        if of != InodeRef::NONE {
            mapping::record_gone(task, of);
        }
        drop(locked);
        orphans |= is_orphan(task, of);
    }
    if orphans { Held::Inodes } else { Held::Nothing }
}

/// A mapping record in hand may still be the first of a process's, whose reaper takes it again.
fn give_back_mapping(task: &Task, lane: LaneId) {
    let taken = &task.region.lane(lane).taken[Mapping::SLAB];
    let id = taken.load(Ordering::Acquire);
    let listed = |process: ProcessId| task.region.process(process).mappings.load(Ordering::Acquire) == id;
    if id != 0 && task.region.processes().any(listed) {
        taken.store(0, Ordering::Release);
    }
    give_back::<Mapping>(task, lane);
}

fn is_orphan(task: &Task, inode: InodeRef) -> bool {
    inode != InodeRef::NONE && task.region.inode(inode.id).nlink.load(Ordering::Relaxed) == 0
}

/// Finishes what a dead thread had begun, gives back what it had in hand, and frees its lane. The caller has
/// [`reclaim::Exclusive`].
pub(crate) fn bury(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    give_back_lock(task, lane);
    intent::lock_burial(task, lane);
    let first = !intent::is_buried(task, lane);
    if first {
        strip(task, lane);
        task.region.retire_lane(lane);
    }
    record.burial.unlock();
    if first {
        leave_section(task, record);
        task.region.release_lane(lane);
    }
}

/// Mends the inode that a dead thread was writing through its bias: whoever takes the inode's lock does, now that the lane's
/// generation tells that its owner is gone. Not inside the burial, for which the next holder of that lock may wait.
fn leave_section(task: &Task, record: &Lane) {
    let inside = InodeId(record.holding.load(Ordering::Acquire));
    if inside.is_some() {
        drop(inode::lock(task, inside));
        record.holding.store(0, Ordering::Release);
    }
}

/// Makes a dead thread's lane as good as new, but for its caches: they are the next owner's. The caller holds `burial`.
pub(crate) fn strip(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    page::repair(task, lane);
    intent::replay(task, lane);
    task.region.repair_slab::<OpenFile>(task.lane, lane);
    task.region.repair_slab::<Inode>(task.lane, lane);
    requeue_file(task, lane, FileId(record.taken[OpenFile::SLAB].load(Ordering::Acquire)));
    for slot in [pin::slot::OPEN, pin::slot::CLOSE] {
        let word = record.pins[slot].load(Ordering::Acquire);
        if word & pin::INODE == 0 {
            requeue_file(task, lane, FileId(word as u32));
        }
    }
    give_back_inode(task, lane);
    give_back::<Dirent>(task, lane);
    give_back::<Bucket>(task, lane);
    give_back::<LongName>(task, lane);
    give_back_mapping(task, lane);
    for pin in &record.pins {
        pin.store(0, Ordering::Release);
    }
    record.writing_depth.store(0, Ordering::Relaxed);
    record.writing.store(0, Ordering::Release);
}

/// Gives back the slot of a slab that the lane had taken and not linked in. Replays settle what they link in or finish.
fn give_back<T: Slot>(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    task.region.repair_slab::<T>(task.lane, lane);
    let index = record.taken[T::SLAB].swap(0, Ordering::AcqRel);
    if index != 0 && !cached::<T>(task, lane, index) {
        task.region.give_shared::<T>(task.lane, T::id(index));
    }
}

/// A lock record in hand may stand in an inode's list. Before the burial: a thread that holds the inode's lock may wait
/// for that.
pub(crate) fn give_back_lock(task: &Task, lane: LaneId) {
    let id = LockId(task.region.lane(lane).taken[LockRecord::SLAB].load(Ordering::Acquire));
    task.region.repair_slab::<LockRecord>(task.lane, lane);
    if id.is_some() && !cached::<LockRecord>(task, lane, id.0) {
        lock::unlink(task, id);
    }
    give_back::<LockRecord>(task, lane);
}

/// An inode in hand was being made, and then nothing names it, or was being freed by a reclaim. The caller has
/// [`reclaim::Exclusive`].
pub(crate) fn give_back_inode(task: &Task, lane: LaneId) {
    let record = task.region.lane(lane);
    let id = InodeId(record.taken[Inode::SLAB].load(Ordering::Acquire));
    let is_root = task.region.header().roots.iter().any(|root| root.load(Ordering::Relaxed) == id.0);
    if id.is_some() && !is_root && !cached::<Inode>(task, lane, id.0) {
        let inode = task.region.inode(id);
        inode.nlink.store(0, Ordering::Relaxed);
        inode.mark.store(0, Ordering::Relaxed);
        if inode.flags.load(Ordering::Relaxed) & inode_flags::ORPHAN == 0 || !reclaim::knows_inode(task, id) {
            reclaim::push_orphan(task, id);
        }
    }
    record.taken[Inode::SLAB].store(0, Ordering::Release);
}

/// An open file in hand may have a name or not: a reclaim finds out.
fn requeue_file(task: &Task, lane: LaneId, id: FileId) {
    if id.is_some() && !cached::<OpenFile>(task, lane, id.0) {
        reclaim::requeue(task, id);
    }
    task.region.lane(lane).taken[OpenFile::SLAB].store(0, Ordering::Release);
}

/// Whether the slot is back in the lane's cache: it died between giving it back and forgetting it.
fn cached<T: Slot>(task: &Task, lane: LaneId, index: u32) -> bool {
    depot::cached(&task.region.lane(lane).caches[T::SLAB], index)
}
