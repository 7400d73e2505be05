//! [`Bits`]: a set of slots or pages.

/// A set of indices, one bit each; it grows to its highest member.
#[derive(Clone, Default, Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    /// Adds an index; false if it was already present.
    pub(crate) fn insert(&mut self, index: u32) -> bool {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(fresh);
        fresh
    }

    /// Whether an index is present.
    pub(crate) fn has(&self, index: u32) -> bool {
        self.word(index as usize / 64) & 1 << (index % 64) != 0
    }

    /// 64 bits: those of indices `64 * index` and up.
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Number of indices.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Its members, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word & 1 << bit != 0).map(move |bit| at as u32 * 64 + bit)
        })
    }
}
