//! Processes that share working directory, root directory and umask: how they begin and end
//! ([`crate::caller::directories`]).
//!
//! The home is the slot of the process that first shared its own words. A process that leaves while others
//! use its slot gets a slot without a process as its home. A home is emptied, but not freed, while another
//! process names it: it stays as that of a dead process, and whoever stops using it, or a later reaper, tries
//! again. Owner: `cwd`, `root` and `umask` of a home belong to all processes that name it.

use lp_abi::{Errno, Result};
use lp_region::life::SlotState;
use lp_region::process::Process;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{ProcessId, Region, RunId};

use crate::caller::directories;
use crate::caller::task::Task;
use crate::life::{reap, reclaim};

/// Makes a child that has not been created yet share the caller's working directory, root directory and
/// umask. The caller blocks the prefixes of its threads afterwards: another process may change the root.
pub fn share(task: &Task<'_>, child: ProcessId) {
    let (region, own) = (task.region, task.process_id);
    let home = directories::home(region, own);
    // A reaper that finds the process dead sees this before it frees the slot.
    region.process(home).lends.store(1, Release);
    if home == own {
        task.process.home.store(own.0, Release);
    }
    let record = region.process(child);
    record.home.store(home.0, Release);
    // The home keeps the directories.
    record.cwd.store(0, Release);
    record.root.store(0, Release);
    // PAIRS: the loads around the scan in `is_home`, which may have passed the child's slot.
    region.header().moves.fetch_add(1, Release);
}

/// Copies the three words from one slot to another, whose process does not use its own meanwhile.
pub(crate) fn copy(region: Region<'_>, from: &Process, to: &Process) {
    loop {
        let (cwd, root) = (from.cwd.load(Acquire), from.root.load(Acquire));
        to.root.store(root, Release);
        to.cwd.store(cwd, Release);
        to.umask.store(from.umask.load(Relaxed), Relaxed); // Relaxed: one word, as seen.
        // A sweep may have passed `to`. If another process or thread has left the directories since, it may
        // pass `from` as well. PAIRS: the loads around the scan in `sweep`.
        region.header().moves.fetch_add(1, Release);
        if (from.cwd.load(Acquire), from.root.load(Acquire)) == (cwd, root) {
            return;
        }
    }
}

/// Whether a process other than its own uses the words of a slot. True as well if that may change meanwhile.
pub(crate) fn is_home(region: Region<'_>, home: ProcessId) -> bool {
    if region.process(home).lends.load(Acquire) == 0 {
        return false;
    }
    // A new user is named by its parent, which uses the same home: if the scan passes the child's slot before
    // it is claimed, and the parent's after its end, this number has changed. PAIRS: the release in `share`.
    let before = region.header().moves.load(Acquire);
    let uses = |id: ProcessId| {
        let process = region.process(id);
        let lives = || matches!(process.life.get().state(), SlotState::Born | SlotState::Live);
        id != home && process.home.load(Acquire) == home.0 && lives()
    };
    region.processes().any(uses) || region.header().moves.load(Acquire) != before
}

/// Whether what a slot says of directories counts: its process lives, or one that uses its words.
pub(crate) fn counts(task: &Task<'_>, id: ProcessId) -> bool {
    let lives = |id: ProcessId| !task.region.process_is_dead(id, task.process_id);
    let uses = |other: ProcessId| task.region.process(other).home.load(Acquire) == id.0 && lives(other);
    // Relaxed: a process that shares its words at this moment lives.
    lives(id) || task.region.process(id).lends.load(Relaxed) != 0 && task.region.processes().any(uses)
}

/// A process no longer uses a home: frees the home if nobody else does.
#[cold]
pub(crate) fn left(task: &Task<'_>, home: ProcessId) {
    reap::process(task, home);
}

/// Makes a call of the kernel's after which the process has working directory, root directory and umask for
/// itself: unshare(2). `call` returns what the kernel returns. Among threads the words stay shared.
///
/// # Errors
/// `ENOMEM` without a slot.
#[cold]
pub fn end(task: &Task<'_>, call: impl FnOnce() -> isize) -> isize {
    // Relaxed: threads of the process are made by threads of the process.
    if !directories::are_shared(task.process) || task.process.threads.load(Relaxed) != 0 {
        return call();
    }
    let to = match destination(task) {
        Ok(to) => to,
        Err(errno) => return errno.to_ret(),
    };
    let done = call();
    if done >= 0 {
        go(task, to);
    }
    if to != task.process_id {
        // Nobody else knows the slot yet.
        let life = task.region.process(to).life.get();
        task.region.abandon_emptying(to, life);
        if done < 0 {
            left(task, to);
        }
    }
    done
}

/// The slot that the process will use: its own, unless others do.
fn destination(task: &Task<'_>) -> Result<ProcessId> {
    let region = task.region;
    if !is_home(region, task.process_id) {
        return Ok(task.process_id);
    }
    let run = RunId(task.process.run.load(Relaxed)); // Relaxed: immutable.
    let claim = || region.claim_process(run, task.lane_id);
    let claimed = claim().or_else(|errno| if reclaim::dead(task) == 0 { Err(errno) } else { claim() });
    let slot = claimed.map_err(|_| Errno::ENOMEM)?;
    region.process(slot).lends.store(1, Release);
    Ok(slot)
}

/// Moves the calling process to a slot that nobody else uses.
fn go(task: &Task<'_>, to: ProcessId) {
    let (region, process) = (task.region, task.process);
    let from = directories::home(region, task.process_id);
    if from != to {
        copy(region, region.process(from), region.process(to));
    }
    let is_own = to == task.process_id;
    process.home.store(if is_own { 0 } else { to.0 }, Release);
    if is_own {
        process.lends.store(0, Release);
    }
    task.directories.set(region.process(to));
    task.prefix.follow(process);
    if from != to {
        left(task, from);
    }
}
