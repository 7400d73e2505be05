//! A stack of free slots threaded through their links, of which batches are taken and given: Treiber's.
//!
//! The head is a [`Signed`] word, so that a burial can tell whether a batch left the stack, or came to it,
//! when its lane died in between. A taker walks down as many links as it wants slots and exchanges the head
//! for what follows; if the head has not changed meanwhile, what it walked along was the stack. Linearisation
//! points: the exchanges. Reclamation: slots are type-stable, so reading the link of one that somebody else
//! has just taken is harmless; the exchange then fails. Progress: lock-free. Source: Treiber, IBM RJ 5118
//! (1986).

use crate::signed::{Note, Seen, Signed};
use crate::sync::{AtomicU32, Ordering};

/// Bits of a slot's index.
pub const INDEX_BITS: u32 = 23;
/// The bit of a note that tells the words of one slab apart.
const PLACE: u64 = 1 << 29;
const COUNT: u32 = INDEX_BITS;
const KIND: u32 = COUNT + 4;

/// A word of a slab that lanes exchange: the top slot of its stack, or its last slot ever handed out.
pub type Head = Signed<INDEX_BITS, PLACE>;

/// What a lane exchanges a word of a slab for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// The batch comes off the stack.
    Take = 1,
    /// The batch goes onto the stack.
    Give = 2,
    /// The batch, neighbours, was never handed out before.
    Fresh = 3,
}

/// Slots that move together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The first, or lowest; the links of those on a stack lead on.
    pub first: u32,
    /// How many, 1 to 15.
    pub count: u32,
}

impl Batch {
    fn note(self, kind: Move) -> u64 {
        let place = if kind == Move::Fresh { PLACE } else { 0 };
        place | (kind as u64) << KIND | u64::from(self.count) << COUNT | u64::from(self.first)
    }
}

/// What a note says; `None` if nothing.
pub fn noted(note: &Note) -> Option<(Move, Batch)> {
    let what = Head::noted(note);
    let kind = match what >> KIND & 3 {
        1 => Move::Take,
        2 => Move::Give,
        3 => Move::Fresh,
        _ => return None,
    };
    let first = what as u32 & ((1 << INDEX_BITS) - 1);
    Some((kind, Batch { first, count: (what >> COUNT) as u32 & 15 }))
}

/// Takes up to `most` slots, at most 15, for lane number `me`, whose note then says so. `link` gives a slot's
/// link, or `None` if there is no such slot.
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
        // A link that leads nowhere is not the stack's, and then the exchange fails, or a damaged one's,
        // which ends there.
        while count < most && next != 0 {
            let Some(link) = link(next) else {
                next = 0;
                break;
            };
            next = link.load(Ordering::Relaxed); // Relaxed: if it was the stack's, `Signed::load` acquired it.
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let next = next & ((1 << INDEX_BITS) - 1);
        let batch = Batch { first: seen.value() as u32, count };
        if head.exchange(me, seen, u64::from(next), batch.note(Move::Take), &note) {
            return Some(batch);
        }
    }
}

/// Gives a batch, whose links lead from its first slot to its last one, for lane number `me`; `last` is that
/// one's link.
pub fn give<'a>(head: &Head, me: u32, batch: Batch, last: &AtomicU32, note: impl Fn(u32) -> &'a Note) {
    loop {
        let seen = head.load();
        last.store(seen.value() as u32, Ordering::Relaxed); // Relaxed: published by the exchange.
        if head.exchange(me, seen, u64::from(batch.first), batch.note(Move::Give), &note) {
            return;
        }
    }
}

/// Hands out a batch of slots that were never used, for lane number `me`, if the last that was is still as it
/// was `seen`.
pub fn grow<'a>(
    last: &Head,
    me: u32,
    seen: Seen<INDEX_BITS>,
    batch: Batch,
    note: impl Fn(u32) -> &'a Note,
) -> bool {
    let end = u64::from(batch.first + batch.count - 1);
    last.exchange(me, seen, end, batch.note(Move::Fresh), note)
}
