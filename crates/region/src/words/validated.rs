//! [`look`]: reads what a word names, without a lock or a mark, although it may be replaced and its slot
//! reused meanwhile.
//!
//! The word names a slot whose contents do not change while it is named. A writer that replaces the word
//! stores the new name, passes a release fence before it touches the old slot's contents, and gives that slot
//! another generation before it is reused. The reader loads the word and the generation, reads, passes an
//! acquire fence, and checks both again.
//!
//! Linearisation: the second load of the word. ABA: the generation. Reclamation: slots are type-stable, so
//! reading a freed one is harmless. Progress: lock-free; a reader retries only when a writer has replaced the
//! word. Source: `get_cached_acl_rcu` of Linux's `fs/posix_acl.c` for the idea, with a validation in place of
//! the grace period.

use crate::sync::{AtomicU32, Ordering, acquire_fence};

/// Returns the result of `read` on the slot that `word` names, once it has read one that stayed; none if the
/// word names none. `generation` returns a slot's generation.
pub fn look<'r, T>(
    word: &AtomicU32,
    generation: impl Fn(u32) -> &'r AtomicU32,
    mut read: impl FnMut(u32) -> T,
) -> Option<T> {
    loop {
        // PAIRS: the release store that sets the word: the slot is filled in.
        let slot = word.load(Ordering::Acquire);
        if slot == 0 {
            return None;
        }
        let before = generation(slot).load(Ordering::Acquire);
        let seen = read(slot);
        // PAIRS: the release fence before the old slot's contents change. A reader that saw part of the
        // change sees the new word.
        acquire_fence();
        // Relaxed: ordered by the fence.
        let same = word.load(Ordering::Relaxed) == slot && generation(slot).load(Ordering::Relaxed) == before;
        if same {
            return Some(seen);
        }
    }
}
