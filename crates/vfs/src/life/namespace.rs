//! Entering a user namespace: unshare(2), setns(2), and clone(2) with `CLONE_NEWUSER`.
//!
//! The process keeps its ids, which are those of the run's namespace, and sees them as the new namespace's map
//! says ([`id_map`]). It has all capabilities there.

use lp_abi::Fd;
use lp_abi::linux::CLONE_NEWNS;
use lp_region::process::caps;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::caller::{id_map, namespaces};
use crate::life::boot::{load_capabilities, set_securebits};

/// A user namespace that setns(2) may enter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The caller's own.
    from: u32,
    is_child: bool,
}

/// What the process will enter by setns(2) with a descriptor.
pub fn target(task: &Task<'_>, fd: Fd) -> Target {
    id_map::settle(task.process);
    Target { from: namespaces::own_user(), is_child: namespaces::is_child(fd) }
}

/// Whether a descriptor is one of a mount namespace.
pub fn is_of_mounts(fd: Fd) -> bool {
    namespaces::kind(fd) == Some(CLONE_NEWNS)
}

/// The process has entered a namespace that was made in its own.
pub fn entered(task: &Task<'_>) {
    id_map::enter(task.process);
    gain(task);
}

/// setns(2) has succeeded. Whether the process has entered another user namespace.
pub fn joined(task: &Task<'_>, target: Target) -> bool {
    if namespaces::own_user() == target.from {
        return false;
    }
    match target.is_child {
        true => id_map::enter(task.process),
        false => id_map::enter_unknown(task.process),
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
