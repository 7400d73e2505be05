//! What a ring holds: calls, and the time before a call that may follow another lane's.
//!
//! An entry lies in one piece. Its first word says how long it is, and of a call the number, the thread and
//! the result; a result that does not fit follows. Then come the arguments, in reverse order and padded to an
//! even number; for each path ([`Shape::paths`]) its length plus one and its bytes, or 0 if it could not be
//! read; and the data ([`Shape::data`]) or the actions ([`Shape::actions`]) that could be read.
//!
//! [`Shape::paths`]: lp_abi::signature::Shape::paths
//! [`Shape::data`]: lp_abi::signature::Shape::data
//! [`Shape::actions`]: lp_abi::signature::Shape::actions()

use core::marker::PhantomData;

use lp_abi::Result;
use lp_abi::gated::CALLS;

use crate::sync::{AtomicU64, Ordering};

/// Words of the entry that holds the time.
pub(super) const TIME: usize = 2;
/// In place of the number of a call: words to pass over, at the end of a ring.
const NOTHING: u64 = CALLS as u64;
/// In place of the number of a call: the processor's counter follows, at the end of the next call.
const NOW: u64 = CALLS as u64 + 1;

/// Where the parts of the first word begin. The length and the thread take the room up to the next.
const NUMBER: u32 = 12;
const TID: u32 = 22;
const IS_LONG: u32 = 44;
const RESULT: u32 = 45;

/// The first word of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Words of the entry.
    pub length: usize,
    /// What it is.
    pub kind: Kind,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A call of a thread; its result follows in a word if there is none.
    Call {
        /// The call.
        number: u32,
        /// The kernel's id of the thread.
        tid: u32,
        /// Its result, if it is short.
        result: Option<i64>,
    },
    /// The time.
    Time,
    /// Nothing.
    Nothing,
}

impl Head {
    /// What the first word says; `None` if it makes no sense.
    pub fn of(word: u64) -> Option<Head> {
        let length = word as usize & ((1 << NUMBER) - 1);
        let kind = match word >> NUMBER & ((1 << (TID - NUMBER)) - 1) {
            NOTHING => Kind::Nothing,
            NOW => Kind::Time,
            number if number < CALLS as u64 => Kind::Call {
                number: number as u32,
                tid: (word >> TID) as u32 & ((1 << (IS_LONG - TID)) - 1),
                result: (word >> IS_LONG & 1 == 0).then_some(word as i64 >> RESULT),
            },
            _ => return None,
        };
        (length != 0).then_some(Head { length, kind })
    }
}

/// Words of arguments in the entry of a call that has `count`.
pub const fn padded(count: usize) -> usize {
    count.next_multiple_of(2)
}

/// Bytes of data that are kept of an argument, one more than are shown.
pub const DATA: usize = 33;

/// Words that a path of so many bytes, or data, may take.
pub const fn words_for(bytes: usize) -> usize {
    1 + bytes.div_ceil(8)
}

/// Words of a call at most.
const MOST: usize = 2 + 6 + 2 * words_for(lp_abi::PATH_MAX) + words_for(DATA);
const _: () = assert!(MOST + 2 * TIME < 1 << NUMBER && NOW < 1 << (TID - NUMBER));

/// An entry that is being written. It shows once [`EntryWriter::end`] is called, and never otherwise.
pub struct EntryWriter<'r> {
    /// The position after the last entry that shows.
    written: &'r AtomicU64,
    /// The position of the first word.
    from: u64,
    start: *mut u64,
    next: *mut u64,
    /// The words are in the ring.
    _words: PhantomData<&'r mut [u64]>,
}

impl<'r> EntryWriter<'r> {
    /// # Safety
    /// The words from `start` on, which stands for position `from`, are the caller's, as many as it pushes
    /// and one more.
    #[inline(always)]
    pub(super) unsafe fn new(written: &'r AtomicU64, from: u64, start: *mut u64) -> EntryWriter<'r> {
        // SAFETY: every entry has a first word, by this contract.
        EntryWriter { written, from, start, next: unsafe { start.add(1) }, _words: PhantomData }
    }

    /// Appends a word.
    #[inline(always)]
    pub fn push(&mut self, word: u64) {
        // SAFETY: within the room that was asked for.
        unsafe {
            self.next.write(word);
            self.next = self.next.add(1);
        }
    }

    /// Appends `count` arguments, which `reversed` holds from its end.
    #[inline(always)]
    pub fn push_arguments(&mut self, count: usize, reversed: &[usize; 6]) {
        // SAFETY: a word of the array. It has just been stored, alone: a wider load would wait until that
        // store and all before it, which go to other lines of the ring, have left the processor's buffer.
        let word = |index: usize| unsafe { (&raw const reversed[index]).read_volatile() } as u64;
        if count > 4 {
            self.push(word(0));
            self.push(word(1));
        }
        if count > 2 {
            self.push(word(2));
            self.push(word(3));
        }
        if count > 0 {
            self.push(word(4));
            self.push(word(5));
        }
    }

    /// Appends a path, which `copy` writes to the room that it is given and whose length it returns.
    #[inline(always)]
    pub fn push_path(&mut self, copy: impl FnOnce(&mut [u8]) -> Result<usize>) {
        // SAFETY: `begin` was asked for room for it. All bytes are initialised: pages of the ring are zero at
        // first.
        let room = unsafe { core::slice::from_raw_parts_mut(self.next.add(1).cast(), lp_abi::PATH_MAX) };
        let length = copy(room).ok();
        self.push(length.map_or(0, |length| length as u64 + 1));
        // SAFETY: as above.
        self.next = unsafe { self.next.add(length.unwrap_or(0).div_ceil(8)) };
    }

    /// Appends `length` bytes, which `copy` writes where it is told, or nothing if it fails.
    #[inline(always)]
    pub fn push_data(&mut self, length: usize, copy: impl FnOnce(*mut u8) -> Result<()>) {
        if copy(self.next.cast()).is_ok() {
            // SAFETY: within the room that was asked for.
            self.next = unsafe { self.next.add(length.div_ceil(8)) };
        }
    }

    /// Whether a result needs a word of its own.
    #[inline(always)]
    pub fn is_long(result: isize) -> bool {
        result << RESULT >> RESULT != result
    }

    /// Publishes the entry, as that of call `number` of a thread. If its result is long, it was pushed first.
    #[inline(always)]
    pub fn end(self, number: usize, tid: u32, result: isize) {
        let is_long = u64::from(Self::is_long(result));
        self.publish(
            (number as u64 % CALLS as u64) << NUMBER
                | u64::from(tid) << TID
                | is_long << IS_LONG
                | (result as u64) << RESULT,
        );
    }

    /// Publishes the entry with that first word, to which its length is added. Returns the position after it.
    #[inline(always)]
    fn publish(self, head: u64) -> u64 {
        // SAFETY: both point into the ring.
        let length = unsafe { self.next.offset_from(self.start) } as u64;
        // SAFETY: the entry's first word.
        unsafe { self.start.write(length | head) };
        let after = self.from.wrapping_add(length);
        // PAIRS: the tracer's acquire: who sees the count sees the words.
        self.written.store(after, Ordering::Release);
        after
    }

    /// Publishes an entry that holds a time.
    pub(super) fn end_as_time(mut self, time: u64) -> u64 {
        self.push(time);
        self.publish(NOW << NUMBER)
    }

    /// Publishes an entry of `length` words that are passed over.
    pub(super) fn end_as_nothing(mut self, length: usize) -> u64 {
        // SAFETY: the words are the caller's.
        self.next = unsafe { self.start.add(length) };
        self.publish(NOTHING << NUMBER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_word_says_what_was_recorded() {
        for result in [0, 1, -1, -4095, (1 << 18) - 1, -(1 << 18), 1 << 18, isize::MAX, isize::MIN] {
            let written = AtomicU64::new(0);
            let mut words = [0; 8];
            // SAFETY: three words are pushed at most.
            let mut entry = unsafe { EntryWriter::new(&written, 40, words.as_mut_ptr()) };
            let is_long = EntryWriter::is_long(result);
            assert_eq!(is_long, !(-(1 << 18)..1 << 18).contains(&result));
            if is_long {
                entry.push(result as u64);
            }
            entry.push_arguments(1, &[0, 0, 0, 0, 2, 1]);
            entry.end(511, (1 << 22) - 1, result);
            let length = 3 + usize::from(is_long);
            let kind =
                Kind::Call { number: 511, tid: (1 << 22) - 1, result: (!is_long).then_some(result as i64) };
            assert_eq!(Head::of(words[0]), Some(Head { length, kind }), "{result}");
            assert_eq!(words[length - 2..length], [2, 1]);
            assert_eq!(written.load(Ordering::Relaxed), 40 + length as u64);
        }
        let written = AtomicU64::new(0);
        let mut words = [0; 9];
        // SAFETY: there are as many words.
        let mut entry = || unsafe { EntryWriter::new(&written, 0, words.as_mut_ptr()) };
        assert_eq!((entry().end_as_time(7), entry().end_as_nothing(9)), (2, 9));
        assert_eq!(Head::of(words[0]), Some(Head { length: 9, kind: Kind::Nothing }));
        assert_eq!((Head::of(0), Head::of(u64::MAX)), (None, None));
    }
}
