//! Intents: a lane's record of a change of more than one word, written before the change.
//!
//! `crate::life::burial` finishes the intents of dead lanes.

use lp_region::sync::{AtomicU64, Ordering};

use crate::caller::task::Task;

/// Operations that leave an intent, [`lp_region::lane::Intent::op`].
pub mod op {
    /// Nothing is under way.
    pub const NONE: u64 = 0;
    /// A change of names; the words are `crate::names::change::Change`'s.
    pub const CHANGE: u64 = 1;
    /// A change of names that uses only the first of those words.
    pub const PLAIN_CHANGE: u64 = 4;
    /// A split of a hash bucket, which the table's state identifies.
    pub(crate) const SPLIT: u64 = 2;
    /// A change of an inode's blob; the words are `crate::inodes::blob::swap`'s.
    pub const BLOB: u64 = 3;
    /// A change of an inode's owners; the words are `crate::inodes::ownership`'s.
    pub const OWNERS: u64 = 5;
    /// A change of an inode's times; the words are `crate::inodes::stamps`'s.
    pub const TIMES: u64 = 6;
    /// A step of content that is shared; the words are `crate::inodes::reflink`'s.
    pub const SHARE: u64 = 7;
    /// The last of them.
    pub const LAST: u64 = SHARE;
}

/// A recorded change under way; dropping this ends it.
#[must_use = "the change counts as done once this is dropped"]
pub(crate) struct IntentGuard<'r>(&'r AtomicU64);

impl Drop for IntentGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: every step is visible to a lane that sees no intent left. PAIRS: the acquire load in
        // `replay`.
        self.0.store(op::NONE, Ordering::Release);
    }
}

/// Records a change. The caller must complete the change before it drops the intent.
#[inline]
pub(crate) fn write<'r, const N: usize>(task: &Task<'r>, op: u64, words: &[u64; N]) -> IntentGuard<'r> {
    let intent = &task.lane.intent;
    for (to, from) in intent.words.iter().zip(words) {
        to.store(*from, Ordering::Relaxed); // Relaxed: published by `op`.
    }
    // PAIRS: the acquire load in `replay`.
    intent.op.store(op, Ordering::Release);
    IntentGuard(&intent.op)
}
