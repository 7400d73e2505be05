//! The order of steps by which a table of buckets is read without a lock while buckets are split: what `lp_vfs::hash` rests
//! on, apart from what a bucket holds.
//!
//! The state says which bucket a hash belongs to, and only grows. A split holds both buckets odd, copies, publishes the state,
//! and removes, so that every state leads to the names. A reader who found nothing while the bucket's count stood still
//! looks at the state again: if it still leads to this bucket it did all the while, and nothing was there.
//! Linearisation point of a look: its second read of the count. Progress: the caller looks again when it is not certain.
//! Source: Litwin, "Linear hashing" (VLDB 1980); `dentry.d_seq` and rename_lock of Linux.

use crate::seq::Seq;
use crate::sync::{AtomicU64, Ordering};

/// Looks once with `find`, which reads the bucket that it is told; gives what it found and whether that is certain.
#[inline(always)]
pub fn look<'t, H>(
    state: &AtomicU64,
    place: impl Fn(u64) -> u32,
    seq: impl FnOnce(u32) -> &'t Seq,
    find: impl FnOnce(u32) -> Option<H>,
) -> (Option<H>, bool) {
    // PAIRS: the release store in `split`: who sees the new state sees the new bucket filled.
    let seen = state.load(Ordering::Acquire);
    let index = place(seen);
    let seq = seq(index);
    let before = seq.read();
    let hit = find(index);
    if seq.retry(before) {
        return (hit, false);
    }
    // Relaxed: `retry` has fenced. A split that emptied the bucket before it was read published the state before that.
    let still = || state.load(Ordering::Relaxed);
    let certain = hit.is_some() || still() == seen || place(still()) == index;
    (hit, certain)
}

/// Splits a bucket whose lock, and that of the new bucket, the caller holds. `copy` puts into the new bucket what belongs there,
/// and says whether all fitted; then `tidy` removes it from the old one, or else what was copied from the new one. All of it
/// may be done again after a death at any step.
pub fn split(
    state: &AtomicU64,
    after: u64,
    [from, to]: [&Seq; 2],
    copy: impl FnOnce() -> bool,
    tidy: impl FnOnce(bool),
) {
    from.begin();
    to.begin();
    let copied = copy();
    if copied {
        // PAIRS: the acquire load in `look`.
        state.store(after, Ordering::Release);
    }
    tidy(copied);
    to.end();
    from.end();
}
