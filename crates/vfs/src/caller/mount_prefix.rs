//! The path of a run's only mount, in a form for one comparison.

use lp_region::process::{Process, Run};
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};

use crate::caller::directories;

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
    /// Its bytes and a slash; [`BLOCKED`] if the prefix must not be used. Atomic like `length`.
    with_slash: AtomicU64,
    /// Ones at its bytes and the slash.
    mask_with_slash: u64,
}

/// What no path that starts with a prefix is.
const BLOCKED: u64 = 1;

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
            return MountPrefix {
                word: 0,
                mask: 0,
                length: AtomicU32::new(0),
                walked: 0,
                with_slash: AtomicU64::new(BLOCKED),
                mask_with_slash: 0,
            };
        }
        let word = path.iter().rev().fold(0, |word, byte| word << 8 | *byte as u64);
        let length = path.len() as u32;
        MountPrefix {
            word,
            mask: (1 << (8 * path.len())) - 1,
            length: AtomicU32::new(0),
            walked: length,
            with_slash: AtomicU64::new(BLOCKED),
            mask_with_slash: u64::MAX >> (56 - 8 * length),
        }
    }

    /// Blocks the prefix if the process's root directory is in a mount, or other processes may put it there,
    /// and else lets it be used.
    pub fn follow(&self, process: &Process) {
        let is_rooted = directories::are_shared(process) || process.root.load(Ordering::Acquire) != 0;
        // Relaxed, here and below: one word, as seen. Without the prefix, paths are looked at more closely.
        if is_rooted || self.walked == 0 {
            return self.block();
        }
        let slash = u64::from(b'/') << (8 * self.walked);
        self.with_slash.store(self.word | slash, Ordering::Relaxed);
        self.length.store(self.walked, Ordering::Relaxed);
    }

    /// Makes [`MountPrefix::starts`] false for every path.
    pub fn block(&self) {
        self.with_slash.store(BLOCKED, Ordering::Relaxed);
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
        if word & self.mask_with_slash == self.with_slash.load(Ordering::Relaxed) {
            return true;
        }
        let length = self.length.load(Ordering::Relaxed);
        let next = (word >> (8 * length)) as u8;
        (next == 0 || next == b'/') && length != 0
    }
}
