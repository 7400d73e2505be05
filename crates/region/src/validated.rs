//! [`look`]: reads what a word names, without a lock and without a mark, although it may be replaced and its slot used
//! again meanwhile.
//!
//! The word names a slot whose contents do not change while it is named. Who replaces it stores the new name, passes a
//! release fence before it touches the old slot's contents, and gives that slot another generation before it is used again.
//! The reader takes the word and the generation, reads, passes an acquire fence, and looks at both once more.
//!
//! Linearisation: the second load of the word. ABA: the generation. Reclamation: slots are type-stable, so that a look at a
//! freed one is harmless. Progress: lock-free; a reader goes round again only when a writer has replaced the word.
//! Source: `get_cached_acl_rcu` of Linux's `fs/posix_acl.c` for the idea, with a validation in place of the grace period.

use crate::sync::{AtomicU32, Ordering, acquire_fence};

/// Gives what `read` makes of the slot that `word` names, once it has read one that stayed; none if it names none.
/// `generation` is a slot's.
pub fn look<'r, T>(
    word: &AtomicU32,
    generation: impl Fn(u32) -> &'r AtomicU32,
    mut read: impl FnMut(u32) -> T,
) -> Option<T> {
    loop {
        // PAIRS: the release store of who sets the word: the slot is filled in.
        let slot = word.load(Ordering::Acquire);
        if slot == 0 {
            return None;
        }
        let before = generation(slot).load(Ordering::Acquire);
        let seen = read(slot);
        // PAIRS: the release fence before the old slot's contents change: who read of the change sees the new word.
        acquire_fence();
        // Relaxed: ordered by the fence.
        let same = word.load(Ordering::Relaxed) == slot && generation(slot).load(Ordering::Relaxed) == before;
        if same {
            return Some(seen);
        }
    }
}
