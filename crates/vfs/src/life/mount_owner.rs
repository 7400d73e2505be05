//! The user namespaces that mounts belong to: a process that has entered one may not uncover what was mounted
//! outside it, nor take restrictions from it. Source: mount_namespaces(7), "Restrictions on mount
//! namespaces"; `MNT_LOCKED` and `can_change_locked_flags` of Linux's fs/namespace.c.
//!
//! The kernel locks the mounts of a namespace as it copies them for a process of another user namespace. Here
//! all processes of a run share one tree, so whether a mount is locked depends on who asks.

use lp_abi::{Errno, Result};
use lp_region::MountId;
use lp_region::mount::{Mount, mount_flags};
use lp_region::process::caps;
use lp_region::sync::Ordering::Relaxed;

use crate::caller::namespaces;
use crate::caller::task::Task;

/// Restrictions that only their owner takes away.
const RESTRICTIONS: u32 =
    mount_flags::READ_ONLY | mount_flags::NODEV | mount_flags::NOSUID | mount_flags::NOEXEC;
/// What only the owner changes.
const ATIME: u32 = mount_flags::NOATIME | mount_flags::NODIRATIME | mount_flags::RELATIME;

/// The user namespace of the caller, as [`Mount::owner`] names it; `None` in the run's own, to which nothing
/// is locked.
fn inner(task: &Task<'_>) -> Option<u32> {
    let caps = task.credentials.get().caps.load(Relaxed); // Relaxed: the thread's own.
    if caps & caps::IN_NAMESPACE == 0 {
        return None;
    }
    // Who cannot know belongs to none, and a limited process makes no calls of the gate's own.
    let number = if lp_abi::sys::is_limited() { 0 } else { namespaces::own_user() };
    Some(if number == 0 { u32::MAX } else { number })
}

/// A mount that is being made belongs to the caller's namespace.
pub(super) fn begin(task: &Task<'_>, record: &Mount) {
    let own = inner(task).unwrap_or(0);
    record.owner.store(own, Relaxed); // Relaxed, both: published by the change.
    record.flags_owner.store(own, Relaxed);
}

/// A copy of a mount keeps its flags' owner and, unless it is the top of what is copied, its owner.
pub(super) fn inherit(from: &Mount, copy: &Mount, is_top: bool) {
    // Relaxed, all: immutable while in use, and published by the change.
    copy.flags_owner.store(from.flags_owner.load(Relaxed), Relaxed);
    if !is_top {
        copy.owner.store(from.owner.load(Relaxed), Relaxed);
    }
}

/// Whether the caller may not uncover what a mount covers.
pub(crate) fn is_locked(task: &Task<'_>, id: MountId) -> bool {
    // Relaxed: immutable while in use.
    inner(task).is_some_and(|own| task.region.mount(id).owner.load(Relaxed) != own)
}

/// Checks that the caller may clear and set flags of a mount.
///
/// # Errors
/// `EPERM`.
pub(crate) fn may_set(task: &Task<'_>, id: MountId, (clear, set): (u32, u32)) -> Result<()> {
    let was = task.region.mount(id).flags.load(Relaxed); // Relaxed: one word, as seen.
    if may_become(task, id, was, was & !clear | set) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether the caller may change the flags of a mount from `was` to `is`.
pub(crate) fn may_become(task: &Task<'_>, id: MountId, was: u32, is: u32) -> bool {
    let is_mild = was & !is & RESTRICTIONS == 0 && (was ^ is) & ATIME == 0;
    // Relaxed: immutable while in use.
    is_mild || inner(task).is_none_or(|own| task.region.mount(id).flags_owner.load(Relaxed) == own)
}

/// Checks that the caller may change a whole file system: it was made in its namespace, by the oldest of its
/// mounts that is left.
///
/// # Errors
/// `EPERM`.
pub(crate) fn may_reconfigure(task: &Task<'_>, superblock: u32) -> Result<()> {
    let Some(own) = inner(task) else { return Ok(()) };
    // Relaxed, all: immutable while in use.
    let mounts = crate::names::mounts::of_run(task, task.process.run.load(Relaxed));
    let all = mounts.map(|id| task.region.mount(id)).filter(|it| it.superblock.load(Relaxed) == superblock);
    let oldest = all.min_by_key(|record| record.serial.load(Relaxed));
    match oldest {
        Some(record) if record.owner.load(Relaxed) == own => Ok(()),
        _ => Err(Errno::EPERM),
    }
}
