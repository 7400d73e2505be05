//! Entering a user namespace: unshare(2), setns(2), and clone(2) with `CLONE_NEWUSER`.
//!
//! The process keeps its ids, which are those of the run's namespace, and sees them as the new namespace's
//! map says ([`id_map`]). It has all capabilities there.

use lp_abi::Fd;
use lp_abi::linux::CLONE_NEWNS;
use lp_region::process::caps;
use lp_region::sync::Ordering;

use crate::caller::id_map::{self, Foreign};
use crate::caller::namespaces;
use crate::caller::task::Task;
use crate::life::load::{load_capabilities, set_securebits};

/// A user namespace that setns(2) may enter.
pub struct Target {
    /// The caller's own.
    from: u32,
    /// Its maps, unless it was made in the caller's: those are read when they are needed.
    maps: Option<Foreign>,
}

/// What the process will enter by setns(2) with a descriptor.
pub fn target(task: &Task<'_>, fd: Fd) -> Target {
    id_map::settle(task.process);
    let from = namespaces::own_user();
    let maps = match namespaces::user_of(fd) {
        Some((number, false)) if number != from => Some(maps_of(task, number)),
        _ => None,
    };
    Target { from, maps }
}

/// The maps of a namespace further below, which a process of the run must be in.
fn maps_of(task: &Task<'_>, number: u32) -> Foreign {
    // Relaxed, both: a process that is gone by now is not found in /proc.
    let namespace = task.process.pid_namespace.load(Ordering::Relaxed);
    let mut pids = task.region.processes().filter_map(|id| {
        let process = task.region.process(id);
        let is_seen = process.pid_namespace.load(Ordering::Relaxed) == namespace;
        is_seen.then(|| process.pid.load(Ordering::Relaxed))
    });
    let found = pids.find(|pid| namespaces::user_of_process(*pid) == number);
    found.map_or(Foreign::NONE, |pid| Foreign::read(task.process, pid))
}

/// Whether a descriptor is one of a mount namespace.
pub fn is_of_mounts(fd: Fd) -> bool {
    namespaces::kind(fd) == Ok(CLONE_NEWNS)
}

/// The process has entered a namespace that was made in its own.
pub fn entered(task: &Task<'_>) {
    id_map::enter(task.process);
    gain(task);
}

/// setns(2) has succeeded. Whether the process has entered another user namespace.
pub fn joined(task: &Task<'_>, target: &Target) -> bool {
    if namespaces::own_user() == target.from {
        return false;
    }
    match &target.maps {
        None => id_map::enter(task.process),
        Some(maps) => id_map::enter_foreign(task.process, maps),
    }
    gain(task);
    true
}

fn gain(task: &Task<'_>) {
    // The thread is the process's only one, but may have credentials of its own.
    for credentials in [task.process, task.credentials.get()] {
        credentials.caps.fetch_or(caps::IN_NAMESPACE, Ordering::Relaxed); // Relaxed: the process's own.
        load_capabilities(credentials);
        set_securebits(credentials, 0);
    }
}
