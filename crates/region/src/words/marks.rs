//! Marks in a lane's own words that others scan: pins and mount writers, without a word that all threads
//! write.
//!
//! *A pin* is a hazard pointer. A thread that wants to use what a word names stores the name in its pin,
//! passes a light barrier and loads the word again ([`pin`]). A thread that removes the name from the word
//! passes the heavy barrier and then reads the pins ([`pinned`]). Store-load on both sides: either the user
//! sees the name gone, or the remover sees the pin. A caller that removes a name but still uses its target
//! must pin the target first ([`take_out`]). A scan reads words before pins, so it sees the name, or the pin,
//! or everything that was done under the pin.
//!
//! *A writer's mark* says which root a lane is changing. The writer stores it, passes a light barrier and
//! looks whether writing is shut ([`enter`]); who shuts it passes the heavy barrier and waits until no lane
//! carries the mark ([`shut`], [`inside`]). If writers are not to depend on its coming back, what it sets
//! says that it is on its way: they may [`call_off`] that, and it has to [`commit`] once it has looked.
//!
//! Linearisation points: the second load of the word; the load of `shut`. Progress: wait-free for the marking
//! side. Source: Michael, "Hazard Pointers" (2004); Piggin, "fs: mnt_want_write speedup" (2009); both with
//! the fence moved to the rare side, as in Dice et al., "Fast non-intrusive memory reclamation" (2016).

use crate::sync::{AtomicU32, AtomicU64, Ordering, heavy_barrier, light_barrier};

/// Pins `name`. The caller must then check that the word in which it found the name still holds it.
#[inline(always)]
pub fn pin(pin: &AtomicU64, name: u64) {
    pin.store(name, Ordering::Relaxed); // Relaxed: ordered by the barriers.
    // PAIRS: the heavy barrier of a thread that reads the pins after the name is gone.
    light_barrier();
}

/// Clears a pin.
#[inline(always)]
pub fn unpin(pin: &AtomicU64) {
    // PAIRS: the acquire in `pinned`: what was done under the pin is done.
    pin.store(0, Ordering::Release);
}

/// The name in a pin; 0 if none.
#[inline]
pub fn pinned(pin: &AtomicU64) -> u64 {
    // PAIRS: the release in `unpin`, and the one in `take_out`.
    pin.load(Ordering::Acquire)
}

/// Replaces `name` by `instead` in `word` and pins the target: the caller may use it until [`unpin`].
#[inline(always)]
pub fn take_out(word: &AtomicU64, pin: &AtomicU64, name: u64, instead: u64) {
    pin.store(name, Ordering::Relaxed); // Relaxed: published by the store below.
    // PAIRS: the acquire in `named`. A scan that sees the name gone sees the pin.
    word.store(instead, Ordering::Release);
}

/// [`take_out`] for a word that others change too: `found` is the name and the whole word. Returns whether
/// the word was still that; if not, nothing is pinned.
#[inline]
pub fn exchange_out(word: &AtomicU64, pin: &AtomicU64, found: (u64, u64), instead: u64) -> bool {
    pin.store(found.0, Ordering::Relaxed); // Relaxed: published by the exchange.
    // PAIRS: the acquire in `named`, as in `take_out`.
    let done = word.compare_exchange(found.1, instead, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if !done {
        unpin(pin);
    }
    done
}

/// Looks again at a word that held `found`, after the caller has noted elsewhere that it will copy the name.
/// Returns whether it still does. If so, who takes the name out ([`exchange_out`]) finds the note.
///
/// The caller pins the target. If this fails, it must not copy the name: who took it out may have missed the
/// note, and then knows that nothing but pins can name the target.
#[inline]
pub fn confirm(word: &AtomicU64, found: u64) -> bool {
    // An exchange for itself: of this and the one in `exchange_out`, the later sees the earlier. PAIRS: the
    // exchange in `exchange_out`.
    word.compare_exchange(found, found, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The name in a word. A scan calls it on all words before it calls [`pinned`] on any pin.
#[inline]
pub fn named(word: &AtomicU64) -> u64 {
    // PAIRS: the release in `take_out`.
    word.load(Ordering::Acquire)
}

/// Marks a change of what `value` names, unless one of `bits` is set in `closed`: then the caller must clear
/// the mark.
#[inline(always)]
pub fn enter(mark: &AtomicU32, value: u32, closed: &AtomicU32, bits: u32) -> bool {
    mark.store(value, Ordering::Relaxed); // Relaxed: ordered by the barriers.
    // PAIRS: the heavy barrier in `shut`.
    light_barrier();
    closed.load(Ordering::Relaxed) & bits == 0 // Relaxed: as above.
}

/// Clears the mark.
#[inline(always)]
pub fn leave(mark: &AtomicU32) {
    // PAIRS: the acquire in `inside`: what the writer changed is changed.
    mark.store(0, Ordering::Release);
}

/// Sets `bits` of `closed`. From here on [`enter`] refuses all lanes except those that already carry the
/// mark; `false` if there is no barrier to make that certain.
#[cold]
#[must_use]
pub fn shut(closed: &AtomicU32, bits: u32) -> bool {
    closed.fetch_or(bits, Ordering::Relaxed); // Relaxed: ordered by the heavy barrier.
    // PAIRS: the light barrier in `enter`.
    heavy_barrier()
}

/// Takes `bits` of `closed` back that [`shut`] set, if it is `seen` still: whether it was. The caller carries
/// its mark. Whoever set them has not made them last ([`commit`]) then, and will not.
pub fn call_off(closed: &AtomicU32, seen: u32, bits: u32) -> bool {
    // PAIRS: the exchange in `commit`: of the two one fails.
    closed.compare_exchange(seen, seen & !bits, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Makes of `closed` what `becomes` says, without the `bits` that [`shut`] set, once nobody is inside; false
/// if somebody has called that off, or if it cannot become anything. It is done if `lasting` is set.
pub fn commit(
    closed: &AtomicU32,
    bits: u32,
    lasting: u32,
    mut becomes: impl FnMut(u32) -> Option<u32>,
) -> bool {
    let mut seen = closed.load(Ordering::Acquire);
    while seen & bits == bits || seen & lasting == lasting {
        // PAIRS: the exchange in `call_off`: of the two one fails.
        let Some(new) = becomes(seen & !bits) else { return false };
        match closed.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Whether a lane with this mark is changing what `value` names.
#[inline]
pub fn inside(mark: &AtomicU32, value: u32) -> bool {
    // PAIRS: the release in `leave`.
    mark.load(Ordering::Acquire) == value
}
