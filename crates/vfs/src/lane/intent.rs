//! Intents: what a lane writes down before a change of more than one word.
//!
//! [`crate::life::burial`] finishes what a dead lane had written down.

use lp_region::sync::Ordering;

use crate::caller::task::Task;

/// Operations that leave an intent, [`lp_region::lane::Intent::op`].
pub mod op {
    /// Nothing under way.
    pub const NONE: u64 = 0;
    /// A change of names; the words are [`crate::names::change::Change`]'s.
    pub const CHANGE: u64 = 1;
    /// A change of names that takes the first of those words only.
    pub const PLAIN_CHANGE: u64 = 4;
    /// A split of a hash bucket: the table's state says which.
    pub const SPLIT: u64 = 2;
    /// A change of an inode's blob; the words are [`crate::inodes::blob::swap`]'s.
    pub const BLOB: u64 = 3;
    /// A change of an inode's owners; the words are [`crate::calls::chown`]'s.
    pub const OWNERS: u64 = 5;
    /// A change of an inode's times; the words are [`crate::calls::utimens`]'s.
    pub const TIMES: u64 = 6;
    /// The last of them.
    pub const LAST: u64 = TIMES;
}

/// Writes down what this lane is about to do.
#[inline]
pub(crate) fn write<const N: usize>(task: &Task, op: u64, words: &[u64; N]) {
    let intent = &task.lane.intent;
    for (to, from) in intent.words.iter().zip(words) {
        to.store(*from, Ordering::Relaxed); // Relaxed: published by `op`.
    }
    // PAIRS: the acquire load in `replay`.
    intent.op.store(op, Ordering::Release);
}

/// Says that it is done.
#[inline]
pub(crate) fn clear(task: &Task) {
    // Release: every step is seen by whoever sees that none is left.
    task.lane.intent.op.store(op::NONE, Ordering::Release);
}
