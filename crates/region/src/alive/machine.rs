//! Identifies the boot in which a region file was last used, to tell a crash of the machine from any other
//! end.
//!
//! While the machine runs, the kernel has the latest version of all pages of the file, whichever process was
//! killed. Across a boot any of the changes since the last fsync(2) may be lost. A launcher that finds the
//! mark of another boot therefore rebuilds the region before anyone uses it (`lp_fsck::rebuild`). An orderly
//! shutdown leaves the same mark: to distinguish it, every last process would have to write out the file.
//!
//! Each process that leaves in order records the time, last of all. A region that no process slot is in use
//! of and whose file has not changed since was left so by all, and by nobody else.

use lp_abi::linux::{
    __NR_clock_gettime, __NR_close, __NR_open, __NR_read, CLOCK_REALTIME, O_CLOEXEC, O_RDONLY,
};

use crate::region::Region;
use crate::sync::Ordering::Relaxed;

/// Digits and dashes of the kernel's boot id (random(4)).
const TEXT: usize = 36;
/// In a second.
const NANOSECONDS: u64 = 1_000_000_000;

impl Region<'_> {
    /// Whether the region is in a file and was last used before this boot, or at an unknown time.
    pub fn is_of_former_boot(self) -> bool {
        let header = self.header();
        // Relaxed: written by a launcher that holds the flock.
        let seen = [header.boot[0].load(Relaxed), header.boot[1].load(Relaxed)];
        header.in_file.load(Relaxed) != 0 && boot_id() != Some(seen)
    }

    /// Records that a process has left in order, and when: after its last change of the region.
    pub fn mark_left(self) {
        let header = self.header();
        // Relaxed, both: set by the launcher, and read by one that finds no process in the region.
        if header.in_file.load(Relaxed) != 0 && !lp_abi::sys::is_limited() {
            header.left.store(now(), Relaxed);
        }
    }

    /// Whether all processes have left in order, and nothing else has changed the file of the region since.
    /// `changed` is its change time in nanoseconds. The caller holds the flock, and has changed nothing.
    pub fn was_left_in_order(self, changed: u64) -> bool {
        // Relaxed: nobody is in the region.
        !self.is_of_former_boot()
            && self.processes().next().is_none()
            && changed <= self.header().left.load(Relaxed)
    }

    /// Records that the region is used in this boot. The caller holds the flock of its file.
    pub fn mark_boot(self) {
        let words = boot_id().unwrap_or_default();
        for (word, value) in self.header().boot.iter().zip(words) {
            word.store(value, Relaxed); // Relaxed: as above.
        }
    }
}

/// Nanoseconds since 1970 by the fine clock: no earlier than any time that a file got before.
fn now() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes.
    let _ = unsafe { lp_abi::syscall!(__NR_clock_gettime, CLOCK_REALTIME, time.as_mut_ptr()) };
    time[0] * NANOSECONDS + time[1]
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
