//! A change of an inode's times, under an intent.

use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, LaneId};

use crate::caller::task::{Task, Time};
use crate::inodes::inode;
use crate::lane::intent::{self, op};

/// New times of an inode: one change, which happens completely or not at all even after a death.
pub(crate) struct Stamps {
    pub(crate) of: InodeId,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl Stamps {
    /// Carries it out. The caller must hold the inode's lock.
    pub(crate) fn carry_out(&self, task: &Task) {
        let _intent = intent::write(task, op::TIMES, &self.to_words());
        self.apply(task);
    }

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

    /// Idempotent.
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
