//! A stack of slots threaded through their links: Treiber's.
//!
//! The head is a word: index of the top slot in the low half (0: empty), a tag in the high half. Linearisation
//! points: the successful exchanges. ABA defence: every push changes the tag. Reclamation: slots are
//! type-stable, so reading the link of a slot that somebody else has just taken is harmless; the exchange then fails.
//! Progress: lock-free. Source: Treiber, IBM RJ 5118 (1986).

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Puts slot `index` on the stack; `link` gives a slot's link.
pub fn push<'a>(head: &AtomicU64, index: u32, link: impl Fn(u32) -> &'a AtomicU32) {
    let mut old = head.load(Ordering::Relaxed); // Relaxed: the exchange checks it.
    loop {
        link(index).store(old as u32, Ordering::Relaxed); // Relaxed: published by the exchange.
        let new = next_tag(old) | u64::from(index);
        // PAIRS: the acquires in `pop`: who takes the slot sees its link and its contents.
        match head.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(seen) => old = seen,
        }
    }
}

/// Takes the top slot.
pub fn pop<'a>(head: &AtomicU64, link: impl Fn(u32) -> &'a AtomicU32) -> Option<u32> {
    // PAIRS: the release in `push`.
    let mut old = head.load(Ordering::Acquire);
    loop {
        let index = old as u32;
        if index == 0 {
            return None;
        }
        let next = link(index).load(Ordering::Relaxed); // Relaxed: the exchange checks that it was still the top.
        let new = old & !0xffff_ffff | u64::from(next);
        match head.compare_exchange(old, new, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return Some(index),
            Err(seen) => old = seen,
        }
    }
}

fn next_tag(head: u64) -> u64 {
    (head >> 32).wrapping_add(1) << 32
}
