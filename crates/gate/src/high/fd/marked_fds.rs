//! Sets of the process's descriptors of one kind.

use lp_abi::Fd;
use lp_region::sync::{AtomicU64, Ordering};

/// Descriptors below 64 that may be of one kind. One that is closed stays in the set until its number is
/// opened again.
pub(super) struct MarkedFds(AtomicU64);

// Relaxed, all: a word of the process's own, and a hint.
impl MarkedFds {
    pub(super) const fn new() -> MarkedFds {
        MarkedFds(AtomicU64::new(0))
    }

    /// A file has been opened as `fd`: puts it into the set or takes it out.
    pub(super) fn opened(&self, fd: Fd, is_one: impl FnOnce() -> bool) {
        let Some(bit) = bit(fd) else { return };
        let before = self.0.load(Ordering::Relaxed);
        let now = if is_one() { before | bit } else { before & !bit };
        if now != before {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    /// Whether `fd` may be in the set.
    #[inline(always)]
    pub(super) fn has(&self, fd: Fd) -> bool {
        bit(fd).is_some_and(|bit| self.0.load(Ordering::Relaxed) & bit != 0)
    }
}

#[inline(always)]
fn bit(fd: Fd) -> Option<u64> {
    1u64.checked_shl(fd.raw() as u32)
}
