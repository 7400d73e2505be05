//! A change of an inode's owners, under an intent.

use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, LaneId};

use crate::caller::task::{Task, Time};
use crate::inodes::inode::{self, Touch};
use crate::lane::intent::{self, op};

/// A chown: one change, which happens completely or not at all even after a death.
pub(crate) struct Owners {
    pub(crate) of: InodeId,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
    pub(crate) time: Time,
}

impl Owners {
    /// Carries it out. The caller must hold the inode's lock.
    pub(crate) fn carry_out(&self, task: &Task) {
        let _intent = intent::write(task, op::OWNERS, &self.to_words());
        self.apply(task);
    }

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

    /// Idempotent.
    fn apply(&self, task: &Task) {
        let inode = task.region.inode(self.of);
        inode.seq.begin();
        inode::put(&inode.mode, self.mode);
        inode::put(&inode.uid, self.uid);
        inode::put(&inode.gid, self.gid);
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
