//! Where the run's mounts appear: a copy of the run record with the lengths measured, made once at attach.

use core::cell::UnsafeCell;

use lp_abi::text::within;
use lp_region::process::{RUN_MOUNTS, Run};
use lp_region::sync::Ordering;

/// The mounts' paths.
pub struct Mounts {
    count: usize,
    longest: usize,
    paths: [&'static [u8]; RUN_MOUNTS],
    /// Bit m set where mount m hides a directory of the host.
    covers: u32,
}

struct Global(UnsafeCell<Mounts>);

// SAFETY: written once, at attach, before any other thread or handler exists.
unsafe impl Sync for Global {}

static MOUNTS: Global =
    Global(UnsafeCell::new(Mounts { count: 0, longest: 0, paths: [&[]; RUN_MOUNTS], covers: 0 }));

/// Takes the paths from the run record.
///
/// # Safety
/// No other thread runs in the gate: attach.
pub unsafe fn read(run: &'static Run) {
    // SAFETY: no other thread runs in the gate: attach, by this function's contract.
    let mounts = unsafe { &mut *MOUNTS.0.get() };
    let count = run.mount_count.load(Ordering::Relaxed) as usize; // Relaxed: immutable while the run lives.
    mounts.count = count.min(RUN_MOUNTS);
    mounts.covers = run.covers.load(Ordering::Relaxed);
    for (to, from) in mounts.paths.iter_mut().zip(&run.mounts).take(mounts.count) {
        *to = from.get();
        mounts.longest = mounts.longest.max(to.len());
    }
}

/// The mounts of this process's run.
#[inline(always)]
pub fn mounts() -> &'static Mounts {
    // SAFETY: not written after attach.
    unsafe { &*MOUNTS.0.get() }
}

impl Mounts {
    /// The paths.
    #[inline(always)]
    pub fn paths(&self) -> &[&'static [u8]] {
        &self.paths[..self.count.min(RUN_MOUNTS)]
    }

    /// Bytes of the longest path.
    #[inline(always)]
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Whether some mount hides a directory of the host, so that the kernel finds something where it should not.
    pub fn cover_any(&self) -> bool {
        self.covers != 0
    }

    /// Whether `path` starts with a mount's path, as written.
    #[inline(always)]
    pub fn holds(&self, path: &[u8]) -> bool {
        self.paths().iter().any(|mount| within(path, mount).is_some())
    }

    /// Whether a mount lies below `path`, an absolute one without a slash at its end: the host need not have what leads there.
    pub fn are_below(&self, path: &[u8]) -> bool {
        self.paths().iter().any(|mount| within(mount, path).is_some_and(|rest| !rest.is_empty()))
    }

    /// Whether a component of `path` is the last component of some mount's path: without one, a path relative to a
    /// directory of the host does not lead into a mount, but through symbolic links.
    pub fn names(&self, path: &[u8]) -> bool {
        path.split(|byte| *byte == b'/').any(|part| {
            self.paths().iter().any(|mount| mount.rsplit(|byte| *byte == b'/').next() == Some(part))
        })
    }
}
