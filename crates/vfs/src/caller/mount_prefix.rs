//! The path of a run's only mount, in a form for one comparison.

use lp_region::process::Run;
use lp_region::sync::Ordering;

/// The path of a run's only mount, if it is short, as a word for one comparison.
#[derive(Clone, Copy)]
pub struct MountPrefix {
    /// Its bytes, zero-padded.
    word: u64,
    /// Ones at its bytes.
    mask: u64,
    /// Its length; 0 if the prefix must not be used.
    length: u32,
}

impl MountPrefix {
    /// The prefix for a run, whose mounts must be final.
    pub fn of(run: &Run) -> Self {
        let path = run.mounts[0].get();
        // Relaxed: immutable while the run lives.
        let alone = run.mount_count.load(Ordering::Relaxed) == 1;
        if !alone || path.is_empty() || path.len() >= 8 {
            return MountPrefix { word: 0, mask: 0, length: 0 };
        }
        let word = path.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64);
        MountPrefix { word, mask: (1 << (8 * path.len())) - 1, length: path.len() as u32 }
    }

    /// Length in bytes.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length as usize
    }

    /// Whether a path whose first eight bytes are `word` leads into the mount.
    #[inline(always)]
    pub fn starts(&self, word: u64) -> bool {
        let next = (word >> (8 * self.length)) as u8;
        word & self.mask == self.word && (next == 0 || next == b'/') && self.length != 0
    }
}
