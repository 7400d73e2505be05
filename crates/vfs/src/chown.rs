//! chown(2), fchown(2), lchown(2), fchownat(2).

use lp_abi::linux::{S_IFDIR, S_IFMT, S_ISGID, S_ISUID, S_IXGRP};
use lp_abi::{Errno, Result};
use lp_region::process::caps;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, LaneId, MountId};

use crate::inode::{self, Touch};
use crate::intent::{self, op};
use crate::task::{Place, Task, Time};
use crate::watch::{self, Touched};
use crate::{permission, target, writer, xattr};

/// An id that stays as it is.
const KEEP: u32 = u32::MAX;

/// Sets owner and group of what a path names; -1 keeps one.
///
/// # Errors
/// Those of path_resolution(7); `EPERM` for who may not, and for an immutable or append-only file; `EROFS`.
pub fn fchownat(
    task: &Task,
    dirfd: i32,
    path: *const u8,
    owner: u32,
    group: u32,
    flags: u32,
) -> Result<Place<()>> {
    target::at(task, dirfd, path, flags, |id, inode, mount| change(task, (id, inode, mount), owner, group))
}

/// Sets owner and group of an open file.
///
/// # Errors
/// `EBADF`; otherwise as [`fchownat`].
pub fn fchown(task: &Task, fd: i32, owner: u32, group: u32) -> Result<()> {
    let held = target::open(task, fd)?;
    change(task, (held.inode_id(), held.inode, held.mount()), owner, group)
}

fn change(task: &Task, (id, inode, mount): (InodeId, &Inode, MountId), owner: u32, group: u32) -> Result<()> {
    set(task, (id, inode, mount), owner, group)?;
    if (owner, group) != (KEEP, KEEP) {
        watch::touched(task, id, inode, Touched::Attributes);
    }
    Ok(())
}

fn set(task: &Task, (id, inode, mount): (InodeId, &Inode, MountId), owner: u32, group: u32) -> Result<()> {
    let _writing = writer::begin(task, mount)?;
    let _locked = inode::lock(task, id);
    // Relaxed throughout: under the lock; credentials change in their own process only.
    if inode.flags.load(Relaxed) & (inode_flags::IMMUTABLE | inode_flags::APPEND) != 0 {
        return Err(Errno::EPERM);
    }
    let (uid, gid) = (inode.uid.load(Relaxed), inode.gid.load(Relaxed));
    let owns = task.credentials.get().fsuid.load(Relaxed) == uid;
    let capable = permission::capable(task, caps::CHOWN);
    // chown_ok, chgrp_ok: an owner may keep the owner, and give the file to a group of its own.
    let may_own = owner == KEEP || capable || owns && owner == uid;
    let may_group = group == KEEP || capable || owns && (group == gid || inode::in_group(task, group));
    if !may_own || !may_group {
        return Err(Errno::EPERM);
    }
    let old = inode.mode.load(Relaxed);
    let mut mode = old;
    if mode & S_IFMT != S_IFDIR {
        mode &= !S_ISUID;
        if mode & S_IXGRP != 0 || !inode::may_keep_setgid(task, gid) {
            mode &= !S_ISGID;
        }
        // notify_change: dropping them is a chmod, and that is the owner's.
        if mode != old && !permission::owns(task, inode) {
            return Err(Errno::EPERM);
        }
        if inode.xattr.load(Relaxed) != 0 {
            xattr::drop_capability(task, id, inode);
        }
    }
    let or_keep = |new: u32, old: u32| if new == KEEP { old } else { new };
    let after = Owners { of: id, uid: or_keep(owner, uid), gid: or_keep(group, gid), mode, time: task.now() };
    intent::write(task, op::OWNERS, &after.to_words());
    after.apply(task);
    intent::clear(task);
    Ok(())
}

/// What a chown makes of an inode: one change, which a death settles wholly or not at all.
struct Owners {
    of: InodeId,
    uid: u32,
    gid: u32,
    mode: u32,
    time: Time,
}

impl Owners {
    fn to_words(&self) -> [u64; 4] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            pair(self.of.0, self.mode),
            pair(self.uid, self.gid),
            self.time.sec as u64,
            u64::from(self.time.nsec),
        ]
    }

    fn from_words([of_mode, ids, sec, nsec]: [u64; 4]) -> Owners {
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        Owners {
            of: InodeId(low(of_mode)),
            mode: high(of_mode),
            uid: low(ids),
            gid: high(ids),
            time: Time { sec: sec as i64, nsec: low(nsec) },
        }
    }

    /// May be done again.
    fn apply(&self, task: &Task) {
        let inode = task.region.inode(self.of);
        inode.seq.begin();
        // Relaxed throughout: inside the section.
        inode.mode.store(self.mode, Relaxed);
        inode.uid.store(self.uid, Relaxed);
        inode.gid.store(self.gid, Relaxed);
        inode::touch_in_section(inode, Touch::Change, self.time);
        inode.seq.end();
    }
}

/// Finishes what a dead lane had begun.
#[cold]
pub(crate) fn replay(task: &Task, lane: LaneId) {
    let intent = &task.region.lane(lane).intent;
    let word = |at: usize| intent.words[at].load(Relaxed); // Relaxed: published by the op.
    Owners::from_words([word(0), word(1), word(2), word(3)]).apply(task);
    intent.op.store(op::NONE, Release);
}
