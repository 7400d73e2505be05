//! Threads with working directory, root directory and umask apart from their process's: unshare(2) with
//! `CLONE_FS` beside other threads.
//!
//! Such a thread uses the words of a slot without a process, and so do the threads that it makes. The slot's
//! [`Process::keeper`] names the process, and counts the threads: they end one by one, or all at once by the
//! process's exec or end, which clears the keeper of all its slots before its own slot is free again. A slot
//! without a keeper that no other process uses (`life::home`) is emptied by whoever cleared it or by a later
//! reaper.

use lp_abi::{Errno, Result};
#[cfg(doc)]
use lp_region::Region;
#[cfg(doc)]
use lp_region::process::Process;
use lp_region::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use lp_region::{ProcessId, RunId};

use crate::caller::directories;
use crate::caller::task::Task;
use crate::life::{home, reap, reclaim};

/// The slot that the calling thread uses apart from its process.
fn own_slot(task: &Task<'_>) -> Option<ProcessId> {
    let slot = task.directories_at();
    // Relaxed: set by the process's threads, before they knew the slot.
    let keeper = task.region.process(slot).keeper.load(Relaxed);
    (slot != task.process_id && keeper == task.process_id.0).then_some(slot)
}

/// Makes a call of the kernel's after which the calling thread has the three for itself.
#[cold]
pub(super) fn part(task: &Task<'_>, call: impl FnOnce() -> isize) -> isize {
    let region = task.region;
    let is_alone = |slot| region.process(slot).users.load(Acquire) == 1 && !home::is_shared(region, slot);
    if own_slot(task).is_some_and(is_alone) {
        return call();
    }
    let slot = match claim(task) {
        Ok(slot) => slot,
        Err(errno) => return errno.to_ret(),
    };
    let record = region.process(slot);
    // An end of the process clears the slot's keeper because of the first.
    task.process.keeper.store(task.process_id.0, Release);
    record.users.store(1, Relaxed); // Relaxed: published with the next.
    record.keeper.store(task.process_id.0, Release);
    region.abandon_emptying(slot, record.life.get());
    let done = call();
    if done < 0 {
        reap::end_kept(task, slot);
        return done;
    }
    home::copy(region, task.directories.get(), record);
    let former = own_slot(task);
    task.directories.set(record);
    if let Some(former) = former {
        leave(task, former);
    }
    done
}

/// Before the calling thread makes another: returns the slot that the new thread is to use, which counts it.
pub fn before_thread(task: &Task<'_>) -> Option<ProcessId> {
    own_slot(task).inspect(|slot| {
        task.region.process(*slot).users.fetch_add(1, AcqRel);
    })
}

/// The thread of [`before_thread`] was not made.
pub fn thread_not_made(task: &Task<'_>) {
    if let Some(slot) = own_slot(task) {
        leave(task, slot);
    }
}

/// The calling thread is one of [`before_thread`], which returned `slot`.
pub fn begin(task: &Task<'_>, slot: ProcessId) {
    let record = task.region.process(slot);
    task.directories.set(record);
    if record.root.load(Acquire) != 0 {
        task.prefix.block();
    }
}

/// The calling thread ends.
pub fn thread_ends(task: &Task<'_>) {
    if let Some(slot) = own_slot(task) {
        task.directories.set(directories::of(task.region, task.process_id));
        leave(task, slot);
    }
}

fn leave(task: &Task<'_>, slot: ProcessId) {
    if task.region.process(slot).users.fetch_sub(1, AcqRel) == 1 {
        reap::end_kept(task, slot);
    }
}

/// A slot without a process, for words that are used elsewhere. The caller has it until
/// [`Region::abandon_emptying`].
///
/// # Errors
/// `ENOMEM`.
pub(super) fn claim(task: &Task<'_>) -> Result<ProcessId> {
    let region = task.region;
    let run = RunId(task.process.run.load(Relaxed)); // Relaxed: immutable.
    let claim = || region.claim_process(run, task.lane_id);
    let claimed = claim().or_else(|errno| if reclaim::dead(task) == 0 { Err(errno) } else { claim() });
    let slot = claimed.map_err(|_| Errno::ENOMEM)?;
    region.process(slot).lends.store(1, Release);
    Ok(slot)
}

/// Before the calling thread executes a program: the new image is to have its three words.
pub fn before_exec(task: &Task<'_>) {
    if let Some(slot) = own_slot(task) {
        task.process.next_home.store(slot.0, Relaxed); // Relaxed: exec orders it for the new image.
    }
}

/// The exec has failed.
pub fn exec_failed(task: &Task<'_>) {
    task.process.next_home.store(0, Relaxed); // Relaxed: the thread's own, as exec runs in one only.
}

/// In the new image: the process has the words of the thread that executed it, and no other threads.
pub(super) fn after_exec(task: &Task<'_>) {
    let (region, process, own) = (task.region, task.process, task.process_id);
    if process.keeper.load(Relaxed) != own.0 {
        return;
    }
    let next = ProcessId(process.next_home.swap(0, Relaxed)); // Relaxed: see `before_exec`.
    if next.is_some() {
        let former = directories::home(region, own);
        if home::is_shared(region, next) || home::is_shared(region, own) {
            process.home.store(next.0, Release);
        } else {
            home::copy(region, region.process(next), process);
            process.home.store(0, Release);
        }
        task.directories.set(directories::of(region, own));
        task.prefix.follow(process);
        if former != own {
            reap::process(task, former);
        }
    }
    reap::end_all_kept(task, own);
}
