//! utimensat(2), futimens(3) and their older kin.

use lp_abi::linux::{UTIME_NOW, UTIME_OMIT};
use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, LaneId, MountId};

use crate::intent::{self, op};
use crate::task::{Place, Task, Time};
use crate::watch::{self, Touched};
use crate::{inode, permission, target, writer};

/// Access and modification time as the calls take them, seconds and nanoseconds each; none is now for both.
pub type Times = Option<[i64; 4]>;

/// Sets the times of what a path names.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for nanoseconds out of range; `EACCES` or `EPERM` for who may not; `EROFS`.
pub fn utimensat(task: &Task, dirfd: i32, path: *const u8, times: Times, flags: u32) -> Result<Place<()>> {
    match wanted(times)? {
        // Nothing is to be set: the path is not even looked at.
        (Set::Keep, Set::Keep) => Ok(Place::Inside(())),
        set => target::at(task, dirfd, path, flags, |id, inode, mount| change(task, (id, inode, mount), set)),
    }
}

/// Sets the times of an open file.
///
/// # Errors
/// `EBADF`; otherwise as [`utimensat`].
pub fn futimens(task: &Task, fd: i32, times: Times) -> Result<()> {
    match wanted(times)? {
        (Set::Keep, Set::Keep) => Ok(()),
        set => {
            let held = target::open(task, fd)?;
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
        // timestamp_truncate: the first and the last second have no fraction.
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
    intent::write(task, op::TIMES, &after.to_words());
    after.apply(task);
    intent::clear(task);
    drop((locked, writing));
    // fsnotify_change takes one time alone for what usually sets it.
    let what = match set {
        (_, Set::Keep) => Touched::Accessed,
        (Set::Keep, _) => Touched::Modified,
        _ => Touched::Attributes,
    };
    watch::touched(task, id, inode, what);
    Ok(())
}

/// What a call makes of an inode's times: one change, which a death settles wholly or not at all.
struct Stamps {
    of: InodeId,
    atime: Time,
    mtime: Time,
    ctime: Time,
}

impl Stamps {
    fn to_words(&self) -> [u64; 5] {
        let nsec = |low: u32, high: Time| u64::from(low) | u64::from(high.nsec) << 32;
        [
            nsec(self.of.0, self.atime),
            self.atime.sec as u64,
            nsec(self.mtime.nsec, self.ctime),
            self.mtime.sec as u64,
            self.ctime.sec as u64,
        ]
    }

    fn from_words(words: [u64; 5]) -> Stamps {
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        Stamps {
            of: InodeId(low(words[0])),
            atime: Time { sec: words[1] as i64, nsec: high(words[0]) },
            mtime: Time { sec: words[3] as i64, nsec: low(words[2]) },
            ctime: Time { sec: words[4] as i64, nsec: high(words[2]) },
        }
    }

    /// May be done again.
    fn apply(&self, task: &Task) {
        inode::set_times(task.region.inode(self.of), self.atime, self.mtime, self.ctime);
    }
}

/// Finishes what a dead lane had begun.
#[cold]
pub(crate) fn replay(task: &Task, lane: LaneId) {
    let intent = &task.region.lane(lane).intent;
    let word = |at: usize| intent.words[at].load(Relaxed); // Relaxed: published by the op.
    Stamps::from_words(core::array::from_fn(word)).apply(task);
    intent.op.store(op::NONE, Release);
}

/// vfs_utimes and setattr_prepare: now for both is for whoever may write, all else for the owner.
fn may_change(task: &Task, inode: &Inode, set: (Set, Set)) -> Result<()> {
    let flags = inode.flags.load(Relaxed); // Relaxed: one word.
    if flags & inode_flags::IMMUTABLE != 0 {
        return Err(Errno::EPERM);
    }
    if set == (Set::Now, Set::Now) {
        return match permission::owns(task, inode) {
            true => Ok(()),
            false => permission::check(task, inode, permission::WRITE),
        };
    }
    if flags & inode_flags::APPEND != 0 || !permission::owns(task, inode) {
        return Err(Errno::EPERM);
    }
    Ok(())
}
