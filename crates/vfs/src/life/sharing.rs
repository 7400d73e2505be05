//! Processes that share working directory, root directory and umask: how they begin and end
//! ([`crate::caller::directories`]). `life::home` says how long their home lasts.

use lp_abi::Result;
use lp_region::ProcessId;
use lp_region::sync::Ordering::{Relaxed, Release};

use crate::caller::directories;
use crate::caller::task::Task;
use crate::life::{home, parted, reap};

/// Makes a child that has not been created yet share the caller's working directory, root directory and
/// umask. The caller blocks the prefixes of its threads afterwards: another process may change the root.
pub fn share(task: &Task<'_>, child: ProcessId) {
    let (region, own) = (task.region, task.process_id);
    let home = task.directories_at();
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
    // PAIRS: the loads around the scan in `home::is_in_use`, which may have passed the child's slot.
    region.header().moves.fetch_add(1, Release);
}

/// Makes a call of the kernel's after which the process has working directory, root directory and umask for
/// itself: unshare(2). `call` returns what the kernel returns. Beside threads, the calling thread has them.
///
/// # Errors
/// `ENOMEM` without a slot.
#[cold]
pub fn end(task: &Task<'_>, call: impl FnOnce() -> isize) -> isize {
    // Relaxed: threads of the process are made by threads of the process.
    let is_apart = task.directories_at() != directories::home(task.region, task.process_id);
    if is_apart || task.process.threads.load(Relaxed) != 0 {
        return parted::part(task, call);
    }
    if !directories::are_shared(task.process) {
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
            reap::process(task, to);
        }
    }
    done
}

/// The slot that the process will use: its own, unless others do.
fn destination(task: &Task<'_>) -> Result<ProcessId> {
    let region = task.region;
    if !home::is_in_use(region, task.process_id) {
        return Ok(task.process_id);
    }
    parted::claim(task)
}

/// Moves the calling process to a slot that nobody else uses.
fn go(task: &Task<'_>, to: ProcessId) {
    let (region, process) = (task.region, task.process);
    let from = directories::home(region, task.process_id);
    if from != to {
        home::copy(region, region.process(from), region.process(to));
    }
    let is_own = to == task.process_id;
    process.home.store(if is_own { 0 } else { to.0 }, Release);
    if is_own {
        process.lends.store(0, Release);
    }
    task.directories.set(region.process(to));
    task.prefix.follow(process);
    if from != to {
        reap::process(task, from);
    }
}
