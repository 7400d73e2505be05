//! Identifies the boot in which a region file was last used, to tell a crash of the machine from any other
//! end.
//!
//! While the machine runs, the kernel has the latest version of all pages of the file, whichever process was
//! killed. Across a boot any of the changes since the last fsync(2) may be lost. A launcher that finds the
//! mark of another boot therefore rebuilds the region before anyone uses it (`lp_fsck::rebuild`). An orderly
//! shutdown leaves the same mark: to distinguish it, every last process would have to write out the file.

use lp_abi::linux::{__NR_close, __NR_open, __NR_read, O_CLOEXEC, O_RDONLY};

use crate::region::Region;
use crate::sync::Ordering::Relaxed;

/// Digits and dashes of the kernel's boot id (random(4)).
const TEXT: usize = 36;

impl Region<'_> {
    /// Whether the region is in a file and was last used before this boot, or at an unknown time.
    pub fn is_of_former_boot(self) -> bool {
        let header = self.header();
        // Relaxed: written by a launcher that holds the flock.
        let seen = [header.boot[0].load(Relaxed), header.boot[1].load(Relaxed)];
        header.in_file.load(Relaxed) != 0 && boot_id() != Some(seen)
    }

    /// Records that the region is used in this boot. The caller holds the flock of its file.
    pub fn mark_boot(self) {
        let words = boot_id().unwrap_or_default();
        for (word, value) in self.header().boot.iter().zip(words) {
            word.store(value, Relaxed); // Relaxed: as above.
        }
    }
}

/// The id of this boot; none without /proc.
fn boot_id() -> Option<[u64; 2]> {
    let mut text = [0u8; TEXT];
    // SAFETY: the path is NUL-terminated, the buffer has the given length, and the descriptor is closed
    // again.
    let got = unsafe {
        let path = c"/proc/sys/kernel/random/boot_id".as_ptr();
        let fd = lp_abi::syscall!(__NR_open, path, O_RDONLY | O_CLOEXEC, 0).ok()?;
        let got = lp_abi::syscall!(__NR_read, fd, text.as_mut_ptr(), text.len());
        let _ = lp_abi::syscall!(__NR_close, fd);
        got.ok()?
    };
    if got != TEXT {
        return None;
    }
    let digits = text.iter().filter_map(|byte| (*byte as char).to_digit(16));
    let id = digits.fold(0u128, |id, digit| id << 4 | u128::from(digit));
    Some([id as u64, (id >> 64) as u64])
}
