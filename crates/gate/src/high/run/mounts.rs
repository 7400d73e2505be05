//! The paths of the run's mounts: a copy of the run record's, with their lengths, made once at attach.

use core::cell::UnsafeCell;

use lp_abi::text::within;
use lp_region::process::{RUN_MOUNTS, Run};
use lp_region::sync::Ordering;

use crate::low::tools::names;

/// The mounts' paths.
pub(crate) struct MountPaths {
    count: usize,
    paths: [&'static [u8]; RUN_MOUNTS],
    /// The names of the directories in which the mounts appear: empty for the root directory.
    above: [&'static [u8]; RUN_MOUNTS],
    /// How the mounts' paths start.
    heads: [Head; RUN_MOUNTS],
    /// Bit m is set if mount m covers a host directory.
    covers: u32,
    /// Whether a mount is the root directory.
    whole: bool,
}

/// Directories of the kernel's own: where a mount is the root directory, they are the host's all the same.
const KERNELS: [&[u8]; 3] = [b"/proc", b"/sys", b"/dev"];

/// Up to eight first bytes of a path.
#[derive(Clone, Copy)]
struct Head {
    bytes: u64,
    mask: u64,
}

impl Head {
    /// How every path starts.
    const ANY: Head = Head { bytes: 0, mask: 0 };

    const fn of(path: &[u8]) -> Head {
        let mut head = Head::ANY;
        let mut at = 0;
        while at < path.len() && at < 8 {
            head.bytes |= (path[at] as u64) << (8 * at);
            head.mask |= 0xff << (8 * at);
            at += 1;
        }
        head
    }

    /// Whether a path whose first eight bytes are `word` starts so.
    #[inline(always)]
    fn starts(self, word: u64) -> bool {
        word & self.mask == self.bytes
    }
}

/// Whether a path whose first eight bytes are `word` may be that of a file which the gate knows by its path:
/// one in /proc or /dev, the memfd of a program, the table of mounts.
#[inline(always)]
pub(crate) fn may_be_known(word: u64) -> bool {
    const KNOWN: [Head; 4] =
        [Head::of(b"/proc/"), Head::of(b"/dev/"), Head::of(names::MEMFD), Head::of(b"/etc/mtab")];
    KNOWN.iter().any(|head| head.starts(word))
}

struct Global(UnsafeCell<MountPaths>);

// SAFETY: written once, at attach, before any other thread or handler exists.
unsafe impl Sync for Global {}

static MOUNTS: Global = Global(UnsafeCell::new(MountPaths {
    count: 0,
    paths: [&[]; RUN_MOUNTS],
    above: [&[]; RUN_MOUNTS],
    heads: [Head::ANY; RUN_MOUNTS],
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
    for (index, path) in run.mounts.iter().map(|path| path.get()).enumerate().take(mounts.count) {
        let mut names = path.rsplit(|byte| *byte == b'/').skip(1);
        mounts.paths[index] = path;
        mounts.above[index] = names.next().unwrap_or_default();
        mounts.heads[index] = if mounts.covers != 0 { Head::ANY } else { Head::of(path) };
        mounts.whole |= path.is_empty();
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

    /// Whether a path whose first eight bytes are `word` may be in a mount, or in a host directory that one
    /// covers.
    #[inline(always)]
    pub(crate) fn may_hold(&self, word: u64) -> bool {
        self.heads[..self.count.min(RUN_MOUNTS)].iter().any(|head| head.starts(word))
    }

    /// Whether a mount appears in a directory with this name: empty for the root directory.
    pub(crate) fn appear_in(&self, name: &[u8]) -> bool {
        let all = self.paths().iter().zip(&self.above);
        all.filter(|(path, _)| !path.is_empty()).any(|(_, above)| *above == name)
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
