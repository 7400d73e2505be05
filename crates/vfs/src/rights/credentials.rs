//! The caller's ids, groups and capabilities.

use lp_region::process::{Process, caps};
use lp_region::records::Inode;
use lp_region::sync::Ordering;

use crate::caller::id_map::{self, IdKind};
use crate::caller::namespaces;
use crate::caller::task::Task;

/// The identity that a check uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id, in addition to the supplementary ones.
    pub gid: u32,
    /// Capabilities, [`caps`].
    pub caps: u32,
}

impl Identity {
    /// The identity of file calls: `fsuid`, `fsgid`.
    #[inline]
    pub(crate) fn of(process: &Process) -> Self {
        // Relaxed: only the calling process writes them.
        Identity {
            uid: process.fsuid.load(Ordering::Relaxed),
            gid: process.fsgid.load(Ordering::Relaxed),
            caps: process.caps.load(Ordering::Relaxed),
        }
    }

    /// The identity of access(2): the real user and group. Capabilities count for a real root only, and then
    /// all permitted ones do; with `SECBIT_NO_SETUID_FIXUP` the effective ones count (the kernel's
    /// access_override_creds).
    pub(crate) fn real(task: &Task<'_>) -> Self {
        let process = task.credentials.get();
        let uid = process.ruid.load(Ordering::Relaxed);
        let effective = process.caps.load(Ordering::Relaxed);
        let caps = match uid {
            _ if effective & (caps::NO_FIXUP | caps::IN_NAMESPACE) != 0 => {
                real_caps_slow(task, uid, effective)
            }
            0 => process.permitted.load(Ordering::Relaxed),
            _ => 0,
        };
        Identity { uid, gid: process.rgid.load(Ordering::Relaxed), caps }
    }
}

/// The capabilities of [`Identity::real`] with `SECBIT_NO_SETUID_FIXUP` or in a user namespace, whose root
/// counts.
#[cold]
fn real_caps_slow(task: &Task<'_>, uid: u32, effective: u32) -> u32 {
    if effective & caps::NO_FIXUP != 0 {
        return effective;
    }
    match id_map::from_run(task.process, IdKind::User, uid) {
        Some(0) => task.credentials.get().permitted.load(Ordering::Relaxed) | caps::IN_NAMESPACE,
        _ => 0,
    }
}

/// Whether capabilities `held` count for the inode. In a user namespace they do if its owner and its group
/// have ids there: the kernel's privileged_wrt_inode_uidgid.
#[inline]
pub(crate) fn reach(task: &Task<'_>, inode: &Inode, held: u32) -> bool {
    held & caps::IN_NAMESPACE == 0 || reach_slow(task, inode)
}

#[cold]
fn reach_slow(task: &Task<'_>, inode: &Inode) -> bool {
    let has = |kind, id: u32| id_map::from_run(task.process, kind, id).is_some();
    // Relaxed: one word each, as seen.
    has(IdKind::User, inode.uid.load(Ordering::Relaxed))
        && has(IdKind::Group, inode.gid.load(Ordering::Relaxed))
}

/// Whether the caller has a capability that counts for the inode, as in `capable_wrt_inode_uidgid`.
#[inline(never)]
pub(crate) fn capable_over(task: &Task<'_>, inode: &Inode, cap: u32) -> bool {
    let held = task.credentials.get().caps.load(Ordering::Relaxed);
    held & cap != 0 && reach(task, inode, held)
}

/// Whether `gid` is the group of `who` or a supplementary group of the caller, as in `in_group_p`.
pub(crate) fn in_group(task: &Task<'_>, who: Identity, gid: u32) -> bool {
    let own = task.credentials.get();
    let count = own.group_count.load(Ordering::Relaxed) as usize;
    who.gid == gid || own.groups.iter().take(count).any(|group| group.load(Ordering::Relaxed) == gid)
}

/// Whether the caller has a capability.
#[inline]
pub(crate) fn capable(task: &Task<'_>, cap: u32) -> bool {
    task.credentials.get().caps.load(Ordering::Relaxed) & cap != 0
}

/// Whether the caller has a capability in the initial user namespace, as in the kernel's `capable`. Only for
/// calls that few processes may make: it asks the kernel.
#[cold]
pub(crate) fn capable_initially(task: &Task<'_>, cap: u32) -> bool {
    // A limited process makes no calls of its own.
    capable(task, cap) && (lp_abi::sys::is_limited() || namespaces::is_first_user())
}

/// Whether the caller owns the inode or may act as if it did, as in `inode_owner_or_capable`.
pub(crate) fn owns(task: &Task<'_>, inode: &Inode) -> bool {
    let owner = inode.uid.load(Ordering::Relaxed);
    owner == task.credentials.get().fsuid.load(Ordering::Relaxed)
        || capable(task, caps::FOWNER) && has_user(task, owner)
}

/// Whether a user has an id in the caller's user namespace.
#[inline]
fn has_user(task: &Task<'_>, uid: u32) -> bool {
    !id_map::is_inside(task.process) || id_map::from_run(task.process, IdKind::User, uid).is_some()
}

/// Whether the process may set the set-group-ID bit of a file of the inode's group, as in
/// `in_group_or_capable`.
#[inline(never)]
pub(crate) fn may_keep_setgid(task: &Task, inode: &Inode) -> bool {
    is_member(task, inode.gid.load(Ordering::Relaxed)) || capable_over(task, inode, caps::FSETID)
}

/// Whether the caller is in group `gid`.
pub(crate) fn is_member(task: &Task, gid: u32) -> bool {
    in_group(task, Identity::of(task.credentials.get()), gid)
}
