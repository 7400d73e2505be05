//! utimensat(2), futimens(3) and the older calls.

use lp_abi::linux::{UTIME_NOW, UTIME_OMIT};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, MountId};

use crate::caller::below;
use crate::caller::event::Touched;
use crate::caller::task::{Place, Task, Time};
use crate::calls::target;
use crate::inodes::stamps::Stamps;
use crate::inodes::{inode, watched};
use crate::lane::writer;
use crate::life::mapping;
use crate::rights::{credentials, permission};

/// Access and modification time as arguments, seconds and nanoseconds each; `None` for the current time for
/// both.
pub type Times = Option<[i64; 4]>;

/// Sets the times of what a path names.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for nanoseconds out of range; `EACCES` or `EPERM` without the right;
/// `EROFS`.
pub fn utimensat(task: &Task, dirfd: Fd, path: UserPtr, times: Times, flags: u32) -> Result<Place<()>> {
    match wanted(times) {
        // Nothing is to be set: the kernel does not even look at the path.
        Ok((Set::Keep, Set::Keep)) => Ok(Place::Inside(())),
        set => {
            target::at(task, dirfd, path, flags, |id, inode, mount| change(task, (id, inode, mount), set?))
        }
    }
}

/// Sets the times of an open file.
///
/// # Errors
/// `EBADF`; otherwise those of [`utimensat`].
pub fn futimens(task: &Task, fd: Fd, times: Times) -> Result<()> {
    match wanted(times)? {
        (Set::Keep, Set::Keep) => Ok(()),
        set => {
            let held = task.fget_no_path(fd)?;
            change(task, (held.inode_id(), held.inode, held.mount()), set)
        }
    }
}

/// What to do with a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    Now,
    Keep,
    To(Time),
}

fn wanted(times: Times) -> Result<(Set, Set)> {
    let one = |sec: i64, nsec: i64| match nsec {
        nsec if nsec == i64::from(UTIME_NOW) => Ok(Set::Now),
        nsec if nsec == i64::from(UTIME_OMIT) => Ok(Set::Keep),
        // The kernel's timestamp_truncate: the first and the last second have no fraction.
        0..1_000_000_000 if sec == i64::MAX || sec == i64::MIN => Ok(Set::To(Time { sec, nsec: 0 })),
        0..1_000_000_000 => Ok(Set::To(Time { sec, nsec: nsec as u32 })),
        _ => Err(Errno::EINVAL),
    };
    match times {
        None => Ok((Set::Now, Set::Now)),
        Some([asec, ansec, msec, mnsec]) => Ok((one(asec, ansec)?, one(msec, mnsec)?)),
    }
}

fn change(task: &Task, (id, inode, mount): (InodeId, &Inode, MountId), set: (Set, Set)) -> Result<()> {
    mapping::settle_times(task, id, inode);
    below::try_attributes(task, inode);
    let writing = writer::begin(task, mount)?;
    let locked = inode::lock(task, id);
    may_change(task, inode, set)?;
    let now = task.now();
    let (atime, mtime) = inode::access_and_modification(inode);
    let time = |set: Set, old: Time| match set {
        Set::Now => now,
        Set::Keep => old,
        Set::To(time) => time,
    };
    let after = Stamps { of: id, atime: time(set.0, atime), mtime: time(set.1, mtime), ctime: now };
    after.carry_out(task);
    drop((locked, writing));
    // The kernel's fsnotify_change: setting one time alone counts as the event that usually sets it.
    let what = match set {
        (_, Set::Keep) => Touched::Accessed,
        (Set::Keep, _) => Touched::Modified,
        _ => Touched::Attributes,
    };
    watched::touched(task, id, inode, what);
    Ok(())
}

/// The kernel's vfs_utimes and setattr_prepare: write permission suffices to set both to the current time;
/// anything else is the owner's right.
fn may_change(task: &Task, inode: &Inode, set: (Set, Set)) -> Result<()> {
    let flags = inode.flags.load(Relaxed); // Relaxed: one word.
    if flags & inode_flags::IMMUTABLE != 0 {
        return Err(Errno::EPERM);
    }
    if set == (Set::Now, Set::Now) {
        return match credentials::owns(task, inode) {
            true => Ok(()),
            false => permission::check_known(task, inode, permission::WRITE),
        };
    }
    if flags & inode_flags::APPEND != 0 || !credentials::owns(task, inode) {
        return Err(Errno::EPERM);
    }
    Ok(())
}
