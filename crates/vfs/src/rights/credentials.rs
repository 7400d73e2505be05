//! Who the caller is: ids, groups and capabilities.

use lp_region::process::{Process, caps};
use lp_region::records::Inode;
use lp_region::sync::Ordering;

use crate::caller::task::Task;

/// Whose identity a check uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id, besides the supplementary ones.
    pub gid: u32,
    /// Capabilities, [`caps`].
    pub caps: u32,
}

impl Identity {
    /// The one that file calls use: `fsuid`, `fsgid`.
    #[inline]
    pub(crate) fn of(process: &Process) -> Self {
        // Relaxed: written by the calling process only.
        Identity {
            uid: process.fsuid.load(Ordering::Relaxed),
            gid: process.fsgid.load(Ordering::Relaxed),
            caps: process.caps.load(Ordering::Relaxed),
        }
    }

    /// The one that access(2) uses: the real user and group. Capabilities count for a real root only, and
    /// then all that it is permitted (access_override_creds, `SECBIT_NO_SETUID_FIXUP` clear).
    pub(crate) fn real(process: &Process) -> Self {
        let uid = process.ruid.load(Ordering::Relaxed);
        let caps = if uid == 0 { process.permitted.load(Ordering::Relaxed) } else { 0 };
        Identity { uid, gid: process.rgid.load(Ordering::Relaxed), caps }
    }
}

/// Whether `gid` is the group of `who`, or a supplementary one of the caller, like `in_group_p`.
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

/// Whether the caller owns the inode or may act as if it did, like `inode_owner_or_capable`.
pub(crate) fn owns(task: &Task<'_>, inode: &Inode) -> bool {
    inode.uid.load(Ordering::Relaxed) == task.credentials.get().fsuid.load(Ordering::Relaxed)
        || capable(task, caps::FOWNER)
}

/// Whether the process may give a file of group `gid` the set-group-ID bit.
pub(crate) fn may_keep_setgid(task: &Task, gid: u32) -> bool {
    is_member(task, gid) || capable(task, caps::FSETID)
}

/// Whether the caller is in group `gid`.
pub(crate) fn is_member(task: &Task, gid: u32) -> bool {
    in_group(task, Identity::of(task.credentials.get()), gid)
}
