//! [`Name`]: one component of a path, with its first bytes in registers.

use core::marker::PhantomData;
use core::slice;

use lp_abi::{Errno, NAME_MAX, Result};
use lp_region::InodeId;
use lp_region::records::SHORT_NAME;

/// Words of a name kept at hand: as many as a [`lp_region::records::Dirent`] holds.
pub(crate) const WORDS: usize = SHORT_NAME / 8;

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;
const SLASHES: u64 = LOW * b'/' as u64;

// Odd constants of rapidhash. Any with half their bits set and no pattern would do.
const SEED: u64 = 0x2d35_8dcc_aa6c_78a5;
const MULTIPLIER: u64 = 0x8bb8_4b93_962e_acc9;

/// A file name: 1 to 255 bytes, no slash and no NUL. Like `struct qstr`.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    /// Start of the name. A pointer to more than the name, because a walk continues from its end.
    start: *const u8,
    length: usize,
    text: PhantomData<&'a [u8]>,
    /// The first 24 bytes, zero-padded.
    words: [u64; WORDS],
}

impl<'a> Name<'a> {
    /// A name with these bytes.
    ///
    /// # Errors
    /// `ENAMETOOLONG` for more than 255 bytes, `ENOENT` for none.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Err(Errno::ENOENT);
        }
        if bytes.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            *word = word_of(chunk);
        }
        Ok(Name { start: bytes.as_ptr(), length: bytes.len(), text: PhantomData, words })
    }

    /// The component that starts at `start` and ends before the next slash or NUL; empty if one is there.
    ///
    /// # Safety
    /// A NUL must follow, with `SLACK` bytes behind it, all readable and unchanged for `'a`.
    #[inline(always)]
    pub unsafe fn scan(start: *const u8) -> Self {
        // SAFETY: the caller guarantees that the text, its NUL and the SLACK bytes behind are readable.
        let word = unsafe { start.cast::<u64>().read_unaligned() };
        let ends = ends_in(word);
        if ends == 0 {
            // SAFETY: the caller guarantees a NUL with SLACK bytes behind it; `word` is the first word.
            return unsafe { Self::scan_longer(start, word) };
        }
        let length = ends.trailing_zeros() as usize / 8;
        Name { start, length, text: PhantomData, words: [word & below(ends), 0, 0] }
    }

    /// [`Name::scan`] of a name whose first word is known.
    ///
    /// # Safety
    /// A NUL must follow, with `SLACK` bytes behind it, all readable and unchanged for `'a`.
    #[inline(never)]
    unsafe fn scan_longer(start: *const u8, first: u64) -> Self {
        let mut words = [first, 0, 0];
        for index in 1..WORDS {
            // SAFETY: no NUL was seen before these 8 bytes, so they lie at most SLACK behind it.
            let word = unsafe { start.add(8 * index).cast::<u64>().read_unaligned() };
            let ends = ends_in(word);
            if ends != 0 {
                words[index] = word & below(ends);
                let length = 8 * index + ends.trailing_zeros() as usize / 8;
                return Name { start, length, text: PhantomData, words };
            }
            words[index] = word;
        }
        // SAFETY: the caller guarantees that a NUL follows; the first 24 bytes contain no end.
        let length = unsafe { scan_rest(start, SHORT_NAME) };
        Name { start, length, text: PhantomData, words }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: the name's text, which is readable and unchanged for `'a`.
        unsafe { slice::from_raw_parts(self.start, self.length) }
    }

    /// Where the text continues.
    #[inline]
    pub fn end(&self) -> *const u8 {
        // SAFETY: the end of the name's text.
        unsafe { self.start.add(self.length) }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is empty: no component was found.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first 24 bytes, zero-padded.
    #[inline]
    pub fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// Whether its first byte is a dot.
    #[inline]
    pub(crate) fn starts_with_dot(&self) -> bool {
        self.words[0] as u8 == b'.'
    }

    /// Whether it is `.`.
    #[inline]
    pub(crate) fn is_dot(&self) -> bool {
        self.len() == 1 && self.words[0] == b'.' as u64
    }

    /// Whether it is `..`.
    #[inline]
    pub(crate) fn is_dot_dot(&self) -> bool {
        self.len() == 2 && self.words[0] == u16::from_le_bytes(*b"..") as u64
    }

    /// Hash of the name in directory `parent`: a folded 64x64 multiplication for each 8 bytes, as in wyhash.
    #[inline(always)]
    pub fn hash(&self, parent: InodeId) -> u32 {
        let mut hash = fold(SEED ^ parent.0 as u64, MULTIPLIER ^ self.words[0]);
        if self.len() > 8 {
            hash = fold(hash ^ self.words[1], MULTIPLIER ^ self.words[2]);
            if self.len() > SHORT_NAME {
                hash = self.hash_rest(hash);
            }
        }
        let hash = fold(hash ^ self.len() as u64, MULTIPLIER);
        (hash ^ hash >> 32) as u32
    }

    #[cold]
    fn hash_rest(&self, mut hash: u64) -> u64 {
        for chunk in self.bytes()[SHORT_NAME..].chunks(8) {
            hash = fold(hash ^ word_of(chunk), MULTIPLIER);
        }
        hash
    }
}

/// The key of an entry: its name in a directory, with the hash of both.
#[derive(Clone, Copy)]
pub struct Key<'n, 'a> {
    /// The directory.
    pub dir: InodeId,
    /// The name.
    pub name: &'n Name<'a>,
    /// [`Name::hash`] of the two.
    pub hash: u32,
}

impl<'n, 'a> Key<'n, 'a> {
    /// The key of `name` in `dir`.
    #[inline(always)]
    pub fn new(dir: InodeId, name: &'n Name<'a>) -> Self {
        Key { dir, name, hash: name.hash(dir) }
    }
}

/// Marks the bytes of a word that are a NUL or a slash: Mycroft's null byte test.
#[inline(always)]
fn ends_in(word: u64) -> u64 {
    let slash = word ^ SLASHES;
    (word.wrapping_sub(LOW) & !word | slash.wrapping_sub(LOW) & !slash) & HIGH
}

/// Ones in the bytes below the lowest mark. That mark is exact: a borrow can set false marks only above a
/// true one.
#[inline(always)]
fn below(ends: u64) -> u64 {
    // The mark is its byte's high bit.
    (ends ^ ends.wrapping_sub(1)) >> 8
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

fn word_of(chunk: &[u8]) -> u64 {
    chunk.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64)
}

/// # Safety
/// A NUL must follow, readable and unchanged.
#[cold]
unsafe fn scan_rest(start: *const u8, mut length: usize) -> usize {
    loop {
        // SAFETY: no NUL was seen before this byte.
        if matches!(unsafe { *start.add(length) }, 0 | b'/') {
            return length;
        }
        length += 1;
    }
}
