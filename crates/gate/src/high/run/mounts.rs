//! The paths of the run's mounts: a copy of the run record's, with their lengths, made once at attach.

use core::cell::UnsafeCell;

use lp_abi::text::within;
use lp_region::process::{RUN_MOUNTS, Run};
use lp_region::sync::Ordering;

/// The mounts' paths.
pub(crate) struct MountPaths {
    count: usize,
    longest: usize,
    paths: [&'static [u8]; RUN_MOUNTS],
    /// Bit m is set if mount m covers a host directory.
    covers: u32,
    /// Whether a mount is the root directory.
    whole: bool,
}

/// Directories of the kernel's own: where a mount is the root directory, they are the host's all the same.
const KERNELS: [&[u8]; 3] = [b"/proc", b"/sys", b"/dev"];
/// Bytes of a path that tell whether it is in one of them.
const KERNELS_LONGEST: usize = 5;

struct Global(UnsafeCell<MountPaths>);

// SAFETY: written once, at attach, before any other thread or handler exists.
unsafe impl Sync for Global {}

static MOUNTS: Global = Global(UnsafeCell::new(MountPaths {
    count: 0,
    longest: 0,
    paths: [&[]; RUN_MOUNTS],
    covers: 0,
    whole: false,
}));

/// Copies the paths from the run record.
///
/// # Safety
/// No other thread may run in the gate: only attach calls it.
pub(crate) unsafe fn read(run: &'static Run) {
    // SAFETY: the caller guarantees that no other thread runs in the gate.
    let mounts = unsafe { &mut *MOUNTS.0.get() };
    let count = run.mount_count.load(Ordering::Relaxed) as usize; // Relaxed: immutable while the run lives.
    mounts.count = count.min(RUN_MOUNTS);
    mounts.covers = run.covers.load(Ordering::Relaxed);
    for (to, from) in mounts.paths.iter_mut().zip(&run.mounts).take(mounts.count) {
        *to = from.get();
        mounts.longest = mounts.longest.max(to.len());
        if to.is_empty() {
            mounts.whole = true;
            mounts.longest = mounts.longest.max(KERNELS_LONGEST);
        }
    }
}

/// The mounts of this process's run.
#[inline(always)]
pub(crate) fn mounts() -> &'static MountPaths {
    // SAFETY: not written after attach.
    unsafe { &*MOUNTS.0.get() }
}

impl MountPaths {
    /// The paths, without trailing slashes: empty for the root directory.
    #[inline(always)]
    pub(crate) fn paths(&self) -> &[&'static [u8]] {
        &self.paths[..self.count.min(RUN_MOUNTS)]
    }

    /// Bytes of a path, without what ends them, that tell whether it is in a mount.
    #[inline(always)]
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Whether some mount covers a host directory, so that the kernel finds something where it should not.
    pub(crate) fn cover_any(&self) -> bool {
        self.covers != 0
    }

    /// Whether `path` starts with a mount's path, compared as text.
    #[inline(always)]
    pub(crate) fn holds(&self, path: &[u8]) -> bool {
        self.paths().iter().any(|mount| within(path, mount).is_some()) && !(self.whole && is_kernels(path))
    }

    /// Whether a mount is the root directory, so that the host has only what [`is_kernels`] says.
    pub(crate) fn are_whole(&self) -> bool {
        self.whole
    }

    /// Whether a path is that of a directory of the kernel's own in a mount that is the root directory.
    pub(crate) fn has_kernels(&self, path: &[u8]) -> bool {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
        self.whole && KERNELS.contains(&&path[..end])
    }

    /// Whether a mount lies below `path`, which is absolute and has no trailing slash. The host need not have
    /// the directories on the way there.
    pub(crate) fn are_below(&self, path: &[u8]) -> bool {
        self.paths().iter().any(|mount| within(mount, path).is_some_and(|rest| !rest.is_empty()))
    }

    /// Whether a component of `path` is the last component of some mount's path. Without one, a path relative
    /// to a host directory leads into a mount only through symbolic links.
    pub(crate) fn names(&self, path: &[u8]) -> bool {
        path.split(|byte| *byte == b'/').any(|part| {
            self.paths().iter().any(|mount| mount.rsplit(|byte| *byte == b'/').next() == Some(part))
        })
    }
}

/// Whether a path is in one of the kernel's own directories, compared as text.
fn is_kernels(path: &[u8]) -> bool {
    KERNELS.iter().any(|kept| within(path, kept).is_some())
}
