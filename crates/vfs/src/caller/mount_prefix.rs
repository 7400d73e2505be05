//! The path of a run's only mount, compared at once.

use lp_region::process::Run;
use lp_region::sync::Ordering;

/// The path of a run's only mount, if it is short, in a form that is compared at once.
#[derive(Clone, Copy)]
pub struct MountPrefix {
    /// Its bytes, zeros behind them.
    word: u64,
    /// Ones where it has bytes.
    mask: u64,
    /// How many; 0 if this is not to be used.
    length: u32,
}

impl MountPrefix {
    /// That of a run whose mounts do not change any more.
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

    /// Bytes of it.
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
