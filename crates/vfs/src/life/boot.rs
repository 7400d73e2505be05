//! Beginnings and ends: creating a file system, claiming a run and its first process, attaching and leaving.

use lp_abi::linux::{__NR_geteuid, S_ISVTX};
use lp_abi::{Errno, Fd, Result};
use lp_region::lane::GONE;
use lp_region::layout::RUNS;
use lp_region::life::SlotState;
use lp_region::mount::{mount_flags, mount_state};
use lp_region::process::{Process, RUN_MOUNTS};
use lp_region::records::Inode;
use lp_region::sync::{AtomicU32, Ordering, register_barrier};
use lp_region::{InodeRef, LaneId, MountId, ProcessId, Region, RunId, Spot};

use crate::caller::namespaces;
use crate::caller::task::Task;
use crate::caller::walked;
use crate::content::backing;
use crate::descriptors::table::entry;
use crate::descriptors::table_lock;
use crate::inodes::make;
use crate::lane::{mount_claim, pin};
use crate::life::load::{
    ImageIds, load_capabilities, load_credentials, load_limit, load_securebits, load_umask, store_ids,
    umask_by_setting,
};
use crate::life::mount_tree::{self, Draft, Making, Tree};
use crate::life::{grace, mapped, mount_end, open_file, parted, reap, reclaim};
use crate::names::{hash, mounts};

/// States of `Run::state`.
mod run_state {
    pub(super) const FREE: u32 = 0;
    pub(super) const CLAIMED: u32 = 1;
}

/// What all processes of a run need to know.
#[derive(Default)]
pub struct RunSetup<'a> {
    /// Paths of the mounts: absolute, normalised, without a trailing slash. Mount m shows root number m.
    pub mounts: &'a [&'a [u8]],
    /// Bit m is set if mount m covers a host directory.
    pub covers: u32,
    /// The launcher's own path.
    pub launcher: &'a [u8],
    /// The cache directory.
    pub cache: &'a [u8],
    /// The preload library's path.
    pub preload: &'a [u8],
    /// The directory of the C library that contains the gate; empty if there is none.
    pub library: &'a [u8],
    /// The number of the dynamic linker beside it, or 0.
    pub linker: u64,
    /// What is recorded about calls; see `Run::stats`.
    pub stats: u32,
    /// What `fs.protected_*` say: [`lp_region::process::protections`].
    pub protections: u64,
}

/// Access to the mounts of a run's command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountAccess {
    /// Read and write.
    ReadWrite,
    /// `--ro`.
    ReadOnly,
}

/// Allocates space in the region's file for everything in use ([`lp_region::backing`]). Nobody may use the
/// region meanwhile.
///
/// # Errors
/// `ENOSPC`; others of fallocate(2).
pub fn back(region: Region) -> Result<()> {
    region.back_records()?;
    hash::back(region)?;
    backing::back_all(region)
}

/// Claims a run record that no live process names and that no launcher's processes hold.
///
/// # Errors
/// `EINVAL` without mounts or with too many; `ENAMETOOLONG`; `EAGAIN` if all are in use; those of fcntl(2).
pub fn claim_run(region: Region, setup: &RunSetup) -> Result<RunId> {
    if setup.mounts.is_empty() || setup.mounts.len() > RUN_MOUNTS {
        return Err(Errno::EINVAL);
    }
    let id = free_run(region)?;
    region.hold_run(id)?;
    let run = region.run(id);
    run.mount_count.store(setup.mounts.len() as u32, Ordering::Relaxed);
    run.stats.store(setup.stats, Ordering::Relaxed);
    run.tracer.store(0, Ordering::Relaxed);
    run.covers.store(setup.covers, Ordering::Relaxed);
    run.protections.store(setup.protections, Ordering::Relaxed);
    run.avx2.store(u32::from(lp_region::cpu::has_avx2()), Ordering::Relaxed);
    // SAFETY: geteuid(2) has no effect.
    let owner = unsafe { lp_abi::syscall!(__NR_geteuid) }?;
    run.owner.store(owner as u32, Ordering::Relaxed);
    run.descriptor.store(region.fd().raw() as u32, Ordering::Relaxed);
    run.launcher.set(setup.launcher)?;
    run.cache.set(setup.cache)?;
    run.preload.set(setup.preload)?;
    run.library.set(setup.library)?;
    run.linker.store(setup.linker, Ordering::Relaxed);
    for (place, path) in run.mounts.iter().zip(setup.mounts) {
        place.set(path)?;
    }
    leave_mounts(region, id);
    Ok(id)
}

/// Removes the mounts of a run that has ended from its tree; [`mkfs`] frees what they had.
fn leave_mounts(region: Region, id: RunId) {
    for base in &region.run(id).bases {
        base.store(0, Ordering::Relaxed); // Relaxed: before any process of the run.
    }
    // What the run's last process may have been changing.
    mount_claim::settle(region);
    for mount in region.mounts() {
        let (record, state) = (region.mount(mount), region.mount(mount).state());
        if record.run.load(Ordering::Relaxed) == id.0 && state.kind() == mount_state::ATTACHED {
            // It fails if another launcher did it.
            let _ = record.pass(state, mount_state::DETACHED, state.at());
        }
    }
}

fn free_run(region: Region) -> Result<RunId> {
    // Run 0 means none.
    let ids = || (1..RUNS as u32).map(RunId);
    let claim = |id: &RunId, from| {
        let state = &region.run(*id).state;
        state.compare_exchange(from, run_state::CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    if let Some(id) = ids().find(|id| claim(id, run_state::FREE)) {
        return Ok(id);
    }
    let used = |id: &RunId| {
        region.run_is_held(*id)
            || region.processes().any(|process| {
                region.process(process).run.load(Ordering::Relaxed) == id.0
                    && !region.process_is_dead(process, ProcessId::NONE)
            })
    };
    ids().find(|id| !used(id) && claim(id, run_state::CLAIMED)).ok_or(Errno::EAGAIN)
}

/// Claims a process slot with the caller's credentials, for itself or for the program that it is about to
/// start.
///
/// # Errors
/// `EAGAIN` if there are none.
pub fn claim_process(region: Region, run: RunId) -> Result<ProcessId> {
    region.claim_process(run, LaneId::NONE).inspect(|id| describe(region, *id))
}

/// Claims a process slot for the calling process, which has none.
///
/// # Errors
/// Those of [`claim_process`].
pub fn claim_own_process(region: Region, run: RunId) -> Result<ProcessId> {
    region.claim_own_process(run).inspect(|id| describe(region, *id))
}

fn describe(region: Region, id: ProcessId) {
    let process = region.process(id);
    process.pid_namespace.store(namespaces::own_pid(), Ordering::Relaxed);
    load_credentials(process, process);
    load_umask(process);
    load_securebits(process);
}

/// Makes the calling thread one of process `id`, its own: after the launcher's claim, after exec, or as the
/// library's first call. Returns its lane. [`arrive`] must follow as soon as there is a task.
///
/// # Errors
/// `ESRCH` if the slot was reaped; `EAGAIN` without a lane; those of fcntl(2) and membarrier(2).
pub fn attach(region: Region, id: ProcessId, tid: u32) -> Result<LaneId> {
    region.animate(id)?;
    register_barrier()?;
    let process = region.process(id);
    let old = LaneId(process.first_lane.load(Ordering::Relaxed));
    // If the image before exec had only one thread, that thread left its lane ([`before_exec`]) and was in no
    // call but exec. One of several threads may have held locks, which still name its lane; `arrive` buries
    // it.
    let alone = process.threads.load(Ordering::Relaxed) == 0;
    if alone && old.is_some() && region.lane(old).process.load(Ordering::Relaxed) == id.0 {
        region.lane(old).tid.store(tid, Ordering::Relaxed);
        return Ok(old);
    }
    let lane = region.claim_lane(id, tid)?;
    process.first_lane.store(lane.0, Ordering::Relaxed);
    Ok(lane)
}

/// Records which thread executes, so that the new image takes over its lane if the process has no other
/// thread. The first thread may have ended and its lane have another owner.
pub fn before_exec(task: &Task) {
    // Relaxed: exec orders it for the new image.
    task.process.first_lane.store(task.lane_id.0, Ordering::Relaxed);
}

/// Brings the process's slot up to date after [`attach`]: loads credentials and removes what belonged to a
/// former image.
pub fn arrive(task: &Task) {
    load_credentials(task.process, task.process);
    load_umask(task.process);
    enter_image(task);
}

/// [`arrive`] after an exec. Of the credentials in the slot, exec may have changed the capabilities, and it
/// sets the file system ids to the effective ones (credentials(7)). Groups and umask are unchanged.
pub fn arrive_by_exec(task: &Task, ids: ImageIds) {
    let process = task.process;
    // Relaxed: the process's own words.
    store_ids(process, process, ids);
    load_capabilities(process);
    load_limit(process, 0);
    enter_image(task);
}

/// [`arrive`] of a process that has run without a slot and has one thread.
pub fn arrive_late(task: &Task) {
    load_credentials(task.process, task.process);
    task.process.umask.store(umask_by_setting(), Ordering::Relaxed);
    enter_image(task);
}

/// After exec, removes the lanes, the mappings and the close-on-exec descriptors of the former image.
fn enter_image(task: &Task) {
    if task.process.attached.swap(1, Ordering::AcqRel) != 0 {
        leave_image(task);
    }
}

/// Removes what exec removes. The kernel has closed no placeholder: [`cloexec_fds`] lists those left to
/// close.
fn leave_image(task: &Task) {
    task.process.threads_gone.fetch_add(1, Ordering::Relaxed); // Relaxed: see `thread_gone`.
    parted::after_exec(task);
    if task.process.threads.swap(0, Ordering::Release) != 0 {
        // Mark all of them first: a burial may need what another of them holds.
        for lane in task.region.lanes().filter(|lane| *lane != task.lane_id) {
            let record = task.region.lane(lane);
            if record.process.load(Ordering::Relaxed) == task.process_id.0 {
                record.tid.store(GONE, Ordering::Release);
            }
        }
        if !reap::bury_lanes(task, task.process_id, task.lane_id) {
            // A lane that must wait for a live thread is buried when the process ends. It may name files of
            // this table, so those are closed as if it could come back to them.
            task.process.threads.store(1, Ordering::Relaxed);
        }
    }
    reap::strip(task, task.lane_id);
    if drop_mappings(task) {
        reclaim::run(task);
    }
}

/// Frees the mapping records of the caller's own process. Returns whether they kept inodes without links.
fn drop_mappings(task: &Task) -> bool {
    let kept = mapped::keeps_unlinked(task);
    reap::drop_mappings(task, task.process_id);
    kept
}

/// Descriptors that exec closes. The door must close each with `open_file::remove`, and its placeholder.
pub fn cloexec_fds<'r>(task: &Task<'r>) -> impl Iterator<Item = Fd> + use<'r> {
    task.table.open().filter(|(_, entry)| entry & entry::CLOEXEC != 0).map(|(fd, _)| fd)
}

/// Creates root number `root` if it does not exist, as a directory like that of a fresh tmpfs, owned by the
/// caller, and mounts it where the run's command line says.
///
/// # Errors
/// `ENOSPC`; `EINVAL` for a root number that is too large.
pub fn mkfs(task: &Task, root: u32) -> Result<()> {
    mount_root(task, root, MountAccess::ReadWrite)
}

/// [`mkfs`], read-only if the run asks for that.
///
/// # Errors
/// Those of [`mkfs`].
pub fn mount_root(task: &Task, root: u32, access: MountAccess) -> Result<()> {
    let header = task.region.header();
    let place = header.roots.get(root as usize).ok_or(Errno::EINVAL)?;
    // PAIRS: the release in `make_root`.
    if place.load(Ordering::Acquire) == 0 {
        make_root(task, root, place)?;
    }
    mount_base(task, root, access)
}

/// The directory of a root that is not mounted; created if it does not exist.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn hidden_root(task: &Task, root: u32) -> Result<InodeRef> {
    let place = &task.region.header().roots[root as usize];
    // PAIRS: the release in `make_root`.
    if place.load(Ordering::Acquire) == 0 {
        make_root(task, root, place)?;
    }
    let id = mounts::superblock_root(task, root);
    Ok(InodeRef { id, generation: task.region.inode(id).generation.load(Ordering::Acquire) })
}

/// Mounts root number `root` where the run's command line says, for its launcher or the library.
///
/// # Errors
/// `ENOSPC`.
fn mount_base(task: &Task<'_>, root: u32, access: MountAccess) -> Result<()> {
    let word = Tree::look(task).base(root);
    if word.load(Ordering::Acquire) != 0 {
        return Ok(());
    }
    mount_end::collect(task);
    let id = mounts::superblock_root(task, root);
    let generation = task.region.inode(id).generation.load(Ordering::Acquire);
    let source = b"lightpath";
    let flags = match access {
        MountAccess::ReadWrite => mount_flags::RELATIME,
        MountAccess::ReadOnly => mount_flags::RELATIME | mount_flags::READ_ONLY,
    };
    let making = Making { root: InodeRef { id, generation }, superblock: root, flags, source };
    let mut base = MountId::NONE;
    mount_tree::change(task, |tree| {
        let leaving = Draft::of_leaving(tree.of_dead_runs());
        // Of several at once the first makes it; or one has that died before the run's word.
        let known = tree.base_of(root);
        base = known.map_or_else(|| tree.make(&making), Ok)?;
        Ok(if known.is_some() { leaving } else { leaving.with_base(base) })
    })?;
    // PAIRS: the load in `mounts::base`.
    word.store(base.0, Ordering::Release);
    Ok(())
}

/// Creates a root's directory. If several callers do so at once, the first one's directory stays.
fn make_root(task: &Task, root: u32, place: &AtomicU32) -> Result<()> {
    let process = task.process;
    let owner = (process.fsuid.load(Ordering::Relaxed), process.fsgid.load(Ordering::Relaxed));
    let made = make::create_root(task, root, S_ISVTX | 0o777, owner)?;
    let record = task.region.inode(made.id);
    record.parent.store(made.id.0, Ordering::Relaxed); // `..` of a root is the root.
    match place.compare_exchange(0, made.id.0, Ordering::AcqRel, Ordering::Relaxed) {
        Ok(_) => task.region.settle::<Inode>(task.lane),
        Err(_) => make::discard(task, made.id),
    }
    Ok(())
}

/// The root of mount `mount` of the task's run.
///
/// # Errors
/// `ENOENT` if there is none.
#[inline]
pub fn root_spot(task: &Task, mount: usize) -> Result<Spot> {
    let spot = mounts::base(task, mount);
    if spot.mount.is_none() { Err(Errno::ENOENT) } else { Ok(spot) }
}

/// The root inode of mount `mount` of the task's run.
///
/// # Errors
/// Those of [`root_spot`].
#[inline]
pub fn root(task: &Task, mount: usize) -> Result<InodeRef> {
    root_spot(task, mount).map(|spot| spot.inode)
}

/// Announces, before clone(2), that a second thread will share the table.
pub fn before_thread(task: &Task) {
    table_lock::before_thread(task);
    task.process.threads.fetch_add(1, Ordering::Relaxed); // Relaxed: clone orders it for the new thread.
}

/// A thread of [`before_thread`] was not created, or ends after its lane was released with [`leave_lane`].
pub fn thread_gone(process: &Process) {
    process.threads_gone.fetch_add(1, Ordering::Relaxed); // Relaxed: published with the next.
    // PAIRS: the loads in `fget` and `table::moves`: what the thread did with the table is complete.
    process.threads.fetch_sub(1, Ordering::Release);
}

/// A lane for a new thread.
///
/// # Errors
/// `EAGAIN`.
pub fn thread_lane(region: Region, process: ProcessId, tid: u32) -> Result<LaneId> {
    region.claim_lane(process, tid)
}

/// Releases a thread's lane at its end. The thread is in no call.
pub fn leave_lane(task: &Task) {
    for slot in 0..task.lane.pins.len() {
        pin::clear(task, slot);
    }
    grace::hand_over(task, task.lane);
    walked::forget(task.region, task.lane_id);
    task.region.release_lane(task.lane_id);
}

/// Leaves for good: exit(2) of the last thread, or of a process whose other threads are in no call. Does
/// nothing while other threads may be in calls; the process is then found dead and reaped.
pub fn exit(task: &Task) {
    if task.process.threads.load(Ordering::Acquire) != 0 {
        return;
    }
    if task.process.posix_locks.load(Ordering::Relaxed) != 0 {
        for (fd, _) in task.table.open() {
            let _ = open_file::remove(task, fd);
        }
    }
    let life = task.process.life.get();
    if life.state() == SlotState::Born {
        return leave_unlocked(task);
    }
    let Some(dying) = task.region.begin_emptying(task.process_id, life, task.lane_id) else { return };
    for (fd, _) in task.table.open() {
        let _ = open_file::remove(task, fd);
    }
    let shared = [&task.directories.get().cwd, &task.directories.get().root];
    let places = task.process.places().into_iter().chain(shared);
    let mut named = places.map(|word| Spot::from_word(word.load(Ordering::Relaxed)).inode);
    let is_unlinked =
        |of: InodeRef| of != InodeRef::NONE && task.region.inode(of.id).nlink.load(Ordering::Relaxed) == 0;
    let kept = named.any(is_unlinked) || mapped::keeps_unlinked(task);
    let done = reap::bury_lanes(task, task.process_id, task.lane_id) && reap::empty(task, task.process_id);
    match kept {
        true => reclaim::run(task),
        false => reclaim::before_leaving(task),
    }
    leave_lane(task);
    // What could not be released is left to the process that finds this one dead.
    match done {
        true => {
            task.region.release_process(task.process_id, dying);
            task.region.mark_left();
        }
        false => task.region.abandon_emptying(task.process_id, dying),
    }
}

/// Leaves for good in place of [`exit`], for a fork's child that has made no call and whose parent will wait
/// for it. What its table names, its parent's did too. So the slot is left to the parent as that of a dead
/// process: the parent has the pages at hand that emptying it takes. Returns false if the child must leave by
/// [`exit`]: its end is an event for somebody, or a region in a file must be left in order.
pub fn leave_to_parent(task: &Task) -> bool {
    let life = task.process.life.get();
    // Relaxed, both: the process's own; immutable.
    let is_event = task.process.posix_locks.load(Ordering::Relaxed) != 0;
    let in_file = task.region.header().in_file.load(Ordering::Relaxed) != 0;
    if is_event || in_file || life.state() != SlotState::Live {
        return false;
    }
    // Nobody else empties the slot before the record lock is dropped.
    if task.region.begin_emptying(task.process_id, life, LaneId::NONE).is_some() {
        leave_lane(task);
        task.region.leave_to_reapers(task.process_id);
    }
    true
}

/// [`exit`] of a process that never took its record lock. Nobody could tell that it is still emptying its
/// slot, so the slot is left to a reaper that finds the process dead.
#[cold]
fn leave_unlocked(task: &Task) {
    for (fd, _) in task.table.open() {
        let _ = open_file::remove(task, fd);
    }
    reclaim::run_own(task);
    leave_lane(task);
}
