//! A stack of free slots threaded through their links, with batched push and pop: Treiber's stack.
//!
//! The head is a [`Signed`] word, so that a burial can tell whether its lane died before or after a batch
//! left or entered the stack. To pop, a lane follows as many links as it wants slots and swaps the head for
//! the next one. If the head has not changed meanwhile, the links it followed were those of the stack.
//! Linearisation points: the exchanges. Reclamation: slots are type-stable, so reading the link of one that
//! another lane has just popped is harmless; the exchange then fails. Progress: lock-free. Source: Treiber,
//! IBM RJ 5118 (1986).

use crate::signed::{Note, Seen, Signed};
use crate::sync::{AtomicU32, Ordering};

/// Bits of a slot's index.
pub const INDEX_BITS: u32 = 24;
/// The bit of a note that distinguishes the words of one slab.
const PLACE: u64 = 1 << 30;
const COUNT: u32 = INDEX_BITS;
const KIND: u32 = COUNT + 4;

/// A word of a slab that lanes exchange: the top slot of its stack, or its last slot ever handed out.
pub type Head = Signed<INDEX_BITS, PLACE>;

/// Purpose of an exchange of a slab's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordExchange {
    /// The batch is popped.
    Take = 1,
    /// The batch is pushed.
    Give = 2,
    /// The batch consists of adjacent slots that were never handed out.
    Fresh = 3,
}

/// Slots that move together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The first, or lowest; on a stack, links lead from it to the others.
    pub first: u32,
    /// Number of slots, 1 to 15.
    pub count: u32,
}

impl Batch {
    fn note(self, kind: WordExchange) -> u64 {
        let place = if kind == WordExchange::Fresh { PLACE } else { 0 };
        place | (kind as u64) << KIND | u64::from(self.count) << COUNT | u64::from(self.first)
    }
}

/// The content of a note; `None` if it is empty.
pub fn noted(note: &Note) -> Option<(WordExchange, Batch)> {
    let what = Head::noted(note);
    let kind = match what >> KIND & 3 {
        1 => WordExchange::Take,
        2 => WordExchange::Give,
        3 => WordExchange::Fresh,
        _ => return None,
    };
    let first = what as u32 & ((1 << INDEX_BITS) - 1);
    Some((kind, Batch { first, count: (what >> COUNT) as u32 & 15 }))
}

/// Pops up to `most` slots, at most 15, for lane number `me`, and records that in the lane's note. `link`
/// returns a slot's link, or `None` if there is no such slot.
pub fn take<'a>(
    head: &Head,
    me: u32,
    most: u32,
    link: impl Fn(u32) -> Option<&'a AtomicU32>,
    note: impl Fn(u32) -> &'a Note,
) -> Option<Batch> {
    loop {
        let seen = head.load();
        let (mut count, mut next) = (0, seen.value() as u32);
        // A link that leads nowhere either is not the stack's, and then the exchange fails, or belongs to a
        // damaged stack, which ends there.
        while count < most && next != 0 {
            let Some(link) = link(next) else {
                next = 0;
                break;
            };
            // Relaxed: if it was the stack's, `Signed::load` acquired it.
            next = link.load(Ordering::Relaxed);
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let next = next & ((1 << INDEX_BITS) - 1);
        let batch = Batch { first: seen.value() as u32, count };
        if head.exchange(me, seen, u64::from(next), batch.note(WordExchange::Take), &note) {
            return Some(batch);
        }
    }
}

/// Pushes a batch, whose links lead from its first slot to its last, for lane number `me`; `last` is the link
/// of the last slot.
pub fn give<'a>(head: &Head, me: u32, batch: Batch, last: &AtomicU32, note: impl Fn(u32) -> &'a Note) {
    loop {
        let seen = head.load();
        last.store(seen.value() as u32, Ordering::Relaxed); // Relaxed: published by the exchange.
        if head.exchange(me, seen, u64::from(batch.first), batch.note(WordExchange::Give), &note) {
            return;
        }
    }
}

/// Hands out a batch of slots that were never used, for lane number `me`, if the last one handed out is still
/// `seen`.
pub fn grow<'a>(
    last: &Head,
    me: u32,
    seen: Seen<INDEX_BITS>,
    batch: Batch,
    note: impl Fn(u32) -> &'a Note,
) -> bool {
    let end = u64::from(batch.first + batch.count - 1);
    last.exchange(me, seen, end, batch.note(WordExchange::Fresh), note)
}
