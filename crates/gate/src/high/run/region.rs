//! The region of this process and its slot there, for threads to come.

use core::cell::UnsafeCell;

use lp_abi::Errno;
use lp_region::process::Run;
use lp_region::sync::Ordering;
use lp_region::{ProcessId, Region, RegionError, ucopy};

use crate::high::run::mounts;

/// The region and the slot of this process. A child that shares its parent's memory has a slot of
/// its own in its task, and makes no threads.
struct Joined(UnsafeCell<Option<(Region<'static>, ProcessId)>>);

// SAFETY: written at attach and in the child of a fork, when there is one thread.
unsafe impl Sync for Joined {}

static JOINED: Joined = Joined(UnsafeCell::new(None));

/// The region and the slot, if the process has them.
pub(crate) fn joined() -> Option<(Region<'static>, ProcessId)> {
    // SAFETY: written when there is one thread only.
    unsafe { *JOINED.0.get() }
}

/// The process has a slot in a region.
pub(crate) fn set_joined(region: Region<'static>, process: ProcessId) {
    // SAFETY: one thread: attach, or the child of a fork.
    unsafe { *JOINED.0.get() = Some((region, process)) };
}

/// The process has none any more.
pub(crate) fn leave() {
    // SAFETY: the child of a fork: one thread.
    unsafe { *JOINED.0.get() = None };
}

/// Takes over what the gate looks at often: where mounts are, how to copy. Called by attach, when there is
/// one thread.
pub(crate) fn read_run(run: &'static Run) {
    // SAFETY: one thread.
    unsafe { mounts::read(run) };
    ucopy::set_wide(run.avx2.load(Ordering::Relaxed) != 0); // Relaxed: immutable.
}

/// Maps the region, whose length LIGHTPATH_GATE says once a gate has checked it.
pub(crate) fn map_region(fd: i32, length: Option<usize>) -> Result<Region<'static>, &'static [u8]> {
    let region = match length {
        // SAFETY: a gate that had opened it, or the launcher, wrote this.
        Some(length) if length != 0 => unsafe { Region::attach(fd, length) }.map_err(RegionError::from),
        _ => Region::open(fd),
    };
    region.map_err(no_region)
}

/// Why there is no region.
pub(crate) fn no_region(error: RegionError) -> &'static [u8] {
    match error {
        RegionError::System(Errno::EBADF) => b"the region's descriptor was closed",
        RegionError::System(Errno::ENOMEM) => b"no address space for the region",
        _ => b"the region cannot be mapped",
    }
}
