//! The path of a run's only mount, in a form for one comparison.

use lp_region::process::{Process, Run};
use lp_region::sync::{AtomicU32, Ordering};

/// The path of a run's only mount, if it is short, as a word for one comparison.
pub struct MountPrefix {
    /// Its bytes, zero-padded.
    word: u64,
    /// Ones at its bytes.
    mask: u64,
    /// Its length; 0 if the prefix must not be used. Atomic: chroot(2) in another thread blocks the prefix.
    length: AtomicU32,
    /// Its length, for a path that the prefix has matched.
    walked: u32,
}

impl MountPrefix {
    /// The prefix for a process of a run, whose mounts must be final.
    pub fn new(run: &Run, process: &Process) -> Self {
        let prefix = MountPrefix::of(run);
        prefix.follow(process);
        prefix
    }

    fn of(run: &Run) -> Self {
        let path = run.mounts[0].get();
        // Relaxed: immutable while the run lives.
        let alone = run.mount_count.load(Ordering::Relaxed) == 1;
        // Not all paths lead into a mount that is the root directory: see `below::is_hosts`.
        if !alone || path.is_empty() || path.len() >= 8 {
            return MountPrefix { word: 0, mask: 0, length: AtomicU32::new(0), walked: 0 };
        }
        let word = path.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64);
        let length = path.len() as u32;
        MountPrefix {
            word,
            mask: (1 << (8 * path.len())) - 1,
            length: AtomicU32::new(length),
            walked: length,
        }
    }

    /// Blocks the prefix if the process's root directory is in a mount, and else lets it be used.
    pub fn follow(&self, process: &Process) {
        let is_rooted = process.root.load(Ordering::Acquire) != 0;
        // Relaxed, here and below: one word, as seen. Without the prefix, paths are looked at more closely.
        self.length.store(if is_rooted { 0 } else { self.walked }, Ordering::Relaxed);
    }

    /// Makes [`MountPrefix::starts`] false for every path.
    pub fn block(&self) {
        self.length.store(0, Ordering::Relaxed);
    }

    /// Length in bytes.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.walked as usize
    }

    /// Whether a path whose first eight bytes are `word` leads into the mount.
    #[inline(always)]
    pub fn starts(&self, word: u64) -> bool {
        if word & self.mask != self.word {
            return false;
        }
        let length = self.length.load(Ordering::Relaxed);
        let next = (word >> (8 * length)) as u8;
        (next == 0 || next == b'/') && length != 0
    }
}
