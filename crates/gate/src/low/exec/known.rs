//! Cache of programs that processes of the region examined before an exec and found good. The key is what
//! stat(2) reports of the file, so a hit costs one call instead of five.
//!
//! Changing a file, its mode or its attributes changes its ctime, which nobody can set. A file that has just
//! changed is not recorded, because a second change could have the same ctime.

use lp_abi::Fd;
use lp_abi::linux::{
    __NR_newfstatat, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFMT, S_IFREG, S_ISGID, S_ISUID, stat,
};
use lp_region::records::PROGRAMS;
use lp_region::sync::{AtomicU64, Ordering};

use crate::low::object::elf::Loader;

/// Minimum age of a file's last change, in seconds.
const SETTLED: i64 = 2;
/// Readable by everyone, so any process could have examined it.
const READABLE: u32 = 0o444;

/// Bits of a fingerprint that identify the file's loader.
const LOADER: u64 = 6;

/// The fingerprints. Each has one possible slot; the latest one stays.
#[derive(Clone, Copy)]
pub(crate) struct KnownPrograms<'r>(pub &'r [AtomicU64; PROGRAMS]);

impl KnownPrograms<'_> {
    /// The loader of a file that was found good in its present state.
    ///
    /// # Safety
    /// `path` must be NUL-terminated, or bad in a way that the kernel answers with `EFAULT`.
    pub(crate) unsafe fn get(&self, directory: Fd, path: *const u8, flags: usize) -> Option<Loader> {
        let mut found = core::mem::MaybeUninit::<stat>::zeroed();
        let flags = flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) as usize;
        // SAFETY: the caller guarantees a NUL-terminated `path`, or one that the kernel answers with
        // `EFAULT`; the kernel fills the record in, and zeros are a valid record too.
        let found = unsafe {
            let done = lp_abi::syscall!(__NR_newfstatat, directory, path, found.as_mut_ptr(), flags);
            if done.is_err() {
                return None;
            }
            found.assume_init()
        };
        // Relaxed: a fingerprint stands alone.
        let kept = is_plain(&found).then(|| self.place(&found).load(Ordering::Relaxed))?;
        [Loader::Gnu, Loader::Other, Loader::System, Loader::Static]
            .into_iter()
            .find(|loader| kept == fingerprint(&found) | mark_of(*loader))
    }

    /// Records a file that was found good and has no capabilities; `now` in seconds.
    pub(crate) fn add(&self, found: &stat, loader: Loader, now: i64) {
        if is_plain(found) && (found.st_ctime as i64) < now - SETTLED {
            // Relaxed: a fingerprint stands alone.
            self.place(found).store(fingerprint(found) | mark_of(loader), Ordering::Relaxed);
        }
    }

    fn place(&self, found: &stat) -> &AtomicU64 {
        &self.0[(fingerprint(found) >> 32) as usize % PROGRAMS]
    }
}

/// Whether executing the file changes no ids, and everyone may read it.
fn is_plain(found: &stat) -> bool {
    found.st_mode & S_IFMT == S_IFREG
        && found.st_mode & (S_ISUID | S_ISGID) == 0
        && found.st_mode & READABLE == READABLE
}

fn mark_of(loader: Loader) -> u64 {
    match loader {
        Loader::Gnu => 0,
        Loader::Other => 2,
        Loader::System => 4,
        Loader::Static => 6,
    }
}

/// Identifies a file in its present state: 61 bits of hash, two zero bits for `LOADER`, and a 1.
fn fingerprint(found: &stat) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = [found.st_dev, found.st_ino, found.st_size as u64, found.st_ctime, found.st_ctime_nsec];
    words.into_iter().fold(PRIME, |sum, word| {
        let mixed = (sum ^ word).wrapping_mul(PRIME);
        mixed ^ mixed >> 29
    }) & !LOADER
        | 1
}
