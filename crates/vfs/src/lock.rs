//! Locks on files: flock(2), and fcntl(2)'s POSIX and open file description locks.

use lp_region::records::LockRecord;
use lp_region::sync::{AtomicU32, Ordering, futex_wake};
use lp_region::{FileId, InodeId, InodeRef, LockId};

use crate::inode;
use crate::task::Task;

/// Values of [`LockRecord::family`].
pub mod family {
    /// Owned by a process, dropped when it closes any descriptor of the file.
    pub const POSIX: u32 = 0;
    /// Owned by an open file.
    pub const OFD: u32 = 1;
    /// flock(2): owned by an open file, always whole.
    pub const FLOCK: u32 = 2;
}

/// Drops the POSIX locks that the calling process has on an inode.
#[cold]
pub fn drop_posix(task: &Task, id: InodeId) {
    let me = task.process_id.0;
    drop_where(task, id, |lock| {
        lock.family.load(Ordering::Relaxed) == family::POSIX && lock.owner.load(Ordering::Relaxed) == me
    });
}

/// Drops the flock and OFD locks of an open file that is going away.
#[cold]
pub(crate) fn drop_file_slow(task: &Task, id: FileId) {
    let file = task.region.file(id);
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id;
    drop_where(task, inode, |lock| {
        lock.family.load(Ordering::Relaxed) != family::POSIX && lock.owner.load(Ordering::Relaxed) == id.0
    });
    file.locked.store(0, Ordering::Relaxed);
}

/// Takes out of an inode's list what `which` picks, and wakes those that wait for it.
fn drop_where(task: &Task, id: InodeId, which: impl Fn(&LockRecord) -> bool) {
    let _held = inode::lock(task, id);
    let inode = task.region.inode(id);
    let mut place: &AtomicU32 = &inode.locks;
    loop {
        let next = LockId(place.load(Ordering::Relaxed)); // Relaxed throughout: under the inode's lock.
        if next.is_none() {
            return;
        }
        let record = task.region.lock_record(next);
        if which(record) {
            place.store(record.link.load(Ordering::Relaxed), Ordering::Release);
            free(task, next, record);
        } else {
            place = &record.link;
        }
    }
}

/// Gives a record back that no list names.
fn free(task: &Task, id: LockId, record: &LockRecord) {
    record.version.fetch_add(1, Ordering::Release);
    futex_wake(&record.version, u32::MAX >> 1);
    task.region.give::<LockRecord>(task.lane, id);
}
