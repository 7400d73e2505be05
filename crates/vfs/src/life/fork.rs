//! fork(2), vfork(2) and clone(2) without `CLONE_FILES`: the child's slot is a copy of the parent's.

use lp_abi::Result;
use lp_region::life::SlotState;
use lp_region::order;
use lp_region::process::{Process, UNANNOUNCED};
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::{FileId, LaneId, ProcessId, Region, RunId};

use crate::caller::id_map;
use crate::caller::identity::copy_credentials;
use crate::caller::namespaces;
use crate::caller::task::Task;
use crate::descriptors::file;
use crate::descriptors::table::{FdTable, closing, entry};
use crate::descriptors::table_lock::Alone;
use crate::life::{home, mapped, reap, reclaim};

/// Forks between two searches for dead processes.
const REAP_EVERY: u32 = 256;

/// Before a fork: claims the child's slot, copies the parent's to it and marks every open file shared. If
/// threads share the table, it stays locked until [`copied`], so that the kernel's copy is of the same
/// moment.
///
/// # Errors
/// `EAGAIN` if the region has no free process slot; `ENOMEM` without records for the parent's mappings;
/// `ENOSPC` if the region's file has no space for the child's table.
pub fn before(task: &Task) -> Result<ProcessId> {
    prepare(task, Memory::Copied)
}

/// [`before`] for a child that runs in the parent's memory until it execs or exits: vfork, posix_spawn.
///
/// # Errors
/// `EAGAIN`, `ENOSPC`.
pub fn before_vfork(task: &Task) -> Result<ProcessId> {
    prepare(task, Memory::Shared)
}

/// What happens to the parent's mappings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The child gets a copy.
    Copied,
    /// The child uses the parent's while the parent waits.
    Shared,
}

fn prepare(task: &Task, memory: Memory) -> Result<ProcessId> {
    let region = task.region;
    let run = RunId(task.process.run.load(Ordering::Relaxed));
    let child = region.claim_process(run, task.lane_id).or_else(|errno| match reclaim::dead(task) {
        0 => Err(errno),
        _ => region.claim_process(run, task.lane_id),
    })?;
    copy_process(task, region.process(child));
    // Before the table is locked, because this takes locks that precede it.
    if (region.header().moves.load(Ordering::Relaxed) as u32).is_multiple_of(REAP_EVERY) {
        reclaim::dead(task);
    }
    // Held across the kernel's fork; `copied` unlocks it.
    Alone::take(task).leave();
    let copied = copy_table(task, child);
    let inherited =
        if memory == Memory::Copied { copied.and_then(|()| mapped::inherit(task, child)) } else { copied };
    // A scan under way may have passed the child's slot but not reached the parent's; this invalidates it.
    // PAIRS: the loads around the scan in `sweep`.
    region.header().moves.fetch_add(1, Ordering::Release);
    if let Err(errno) = inherited {
        failed(task, child);
        return Err(errno);
    }
    Ok(child)
}

fn copy_process(task: &Task, child: &Process) {
    let parent = task.process;
    copy_credentials(task.credentials.get(), child);
    id_map::inherit(parent, child);
    // Relaxed throughout: the slot is the child's once the kernel's call has created it.
    let words: [fn(&Process) -> &AtomicU32; 4] =
        [|p| &p.pid_namespace, |p| &p.exe_dirent, |p| &p.exe_parent, |p| &p.attached];
    for word in words {
        word(child).store(word(parent).load(Ordering::Relaxed), Ordering::Relaxed);
    }
    // POSIX locks are not inherited; what is stored beside entries is.
    let closing = parent.posix_locks.load(Ordering::Relaxed) & closing::SHADOWS;
    child.posix_locks.store(closing, Ordering::Relaxed);
    child.fsize_limit.store(parent.fsize_limit.load(Ordering::Relaxed), Ordering::Relaxed);
    child.parked.store(parent.parked.load(Ordering::Relaxed), Ordering::Relaxed);
    home::copy(task.region, task.directories.get(), child);
    // The file stays alive: the parent's slot holds it meanwhile.
    child.exe.store(parent.exe.load(Ordering::Relaxed), Ordering::Release);
}

/// Copies the table. If threads share it, the caller must hold its lock, so that nobody removes entries
/// meanwhile.
fn copy_table(task: &Task, child: ProcessId) -> Result<()> {
    let limit = task.process.fd_limit.load(Ordering::Relaxed);
    task.region.back_table(child, 0, limit as usize)?;
    task.region.process(child).fd_limit.store(limit, Ordering::Release);
    let table = FdTable::of(task.region, child);
    for ((_, to), (_, from)) in table.entries().zip(task.table.entries()) {
        let word = from.load(Ordering::Relaxed);
        if word & entry::OPEN != 0 {
            file::share(task.region.file(FileId(word as u32)));
        }
        if word | to.load(Ordering::Relaxed) != 0 {
            to.store(word, Ordering::Release);
        }
    }
    Ok(())
}

/// The address to which the kernel writes the id of a child created by clone(2) (CLONE_PARENT_SETTID). It
/// tells whether the child was created, even if parent or child dies in between.
pub fn announce_at(region: Region, child: ProcessId) -> *mut u32 {
    region.process(child).pid.as_ptr()
}

/// Announces, before the call, a child whose id the kernel does not write.
pub fn make_unannounced(task: &Task, child: ProcessId) {
    task.region.process(child).pid.store(UNANNOUNCED, Ordering::Release);
}

/// Before a child shares the kernel's descriptor table: the caller, too, has no record lock until its exec
/// gives it a table for itself.
///
/// # Errors
/// Those of fcntl(2).
pub fn before_sharing(task: &Task) -> Result<()> {
    task.region.give_up_lock(task.process_id, namespaces::own_pid())
}

/// Before a thread gets a descriptor table of the kernel's for itself (unshare(2), close_range(2)): the
/// record lock stays with the table that the other threads have, and ends with the last of them.
///
/// # Errors
/// Those of fcntl(2).
pub fn before_unsharing(task: &Task) -> Result<()> {
    // Relaxed: only this thread can have created the second thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 { Ok(()) } else { before_sharing(task) }
}

/// [`child`] for one that shares the kernel's descriptor table with its parent. A record lock belongs to that
/// table, so the slot has none and stays in state born until its process execs, which gives it its own table.
///
/// # Errors
/// Those of [`child`]; `ESRCH` if the slot was reaped.
pub fn child_that_shares(region: Region, id: ProcessId, tid: u32) -> Result<LaneId> {
    region.introduce(id, namespaces::own_pid())?;
    first_lane(region, id, tid)
}

/// Makes the calling process the child of slot `id`, first thing after the kernel's call. Returns its lane.
/// Memory that is a copy of the parent's, or is the parent's, is registered for barriers as the parent's is.
///
/// # Errors
/// Those of [`crate::life::boot::attach`]; the child cannot continue.
pub fn child(region: Region, id: ProcessId, tid: u32) -> Result<LaneId> {
    let process = region.process(id);
    let announced = process.pid.load(Ordering::Relaxed);
    region.animate(id)?;
    if announced != process.pid.load(Ordering::Relaxed) {
        // Its parent sees it under another number, or the parent's number for it is unknown.
        process.pid_namespace.store(namespaces::own_pid(), Ordering::Relaxed);
    }
    first_lane(region, id, tid)
}

fn first_lane(region: Region, id: ProcessId, tid: u32) -> Result<LaneId> {
    let lane = region.claim_lane(id, tid)?;
    region.process(id).first_lane.store(lane.0, Ordering::Relaxed);
    Ok(lane)
}

/// After the kernel has copied its descriptor table: threads may change ours again. `task` is the parent's. A
/// child in its memory may get here before the parent.
pub fn copied(task: &Task) {
    if task.process.table_lock.holder() == task.lane_id {
        task.process.table_lock.unlock();
        order::gave(order::of(&task.lane.holding), &task.process.table_lock);
    }
}

/// The kernel's call has failed: frees the child's slot.
pub fn failed(task: &Task, child: ProcessId) {
    copied(task);
    give_back_unborn(task, child);
    reclaim::run_own(task);
}

/// After a child in the parent's memory has execed or exited: if it was killed before it took its slot, frees
/// the slot.
pub fn after_vfork(task: &Task, child: ProcessId) {
    // If the child has exited, the slot may be another's, but then another thread claimed it.
    let life = task.region.process(child).life.get();
    if life.state() == SlotState::Born && life.lane() == task.lane_id {
        give_back_unborn(task, child);
    }
}

fn give_back_unborn(task: &Task, child: ProcessId) {
    reap::bury_process(task, child, task.region.process(child).life.get());
}
