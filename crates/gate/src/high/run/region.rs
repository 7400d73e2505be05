//! The region of this process and its slot there, which later threads need.

use core::cell::UnsafeCell;

use lp_abi::{Errno, Fd};
use lp_region::process::Run;
use lp_region::sync::Ordering;
use lp_region::{ProcessId, Region, RegionError, ucopy};

use crate::high::run::mounts;
use crate::low::thread::home;

/// The region of this process. The number of its slot there is in its home ([`home::slot`]), on a page that
/// the child of a fork writes in any case. A child that shares its parent's memory has its own slot in its
/// task, and creates no threads.
struct Joined(UnsafeCell<Option<Region<'static>>>);

// SAFETY: written when the process joins, while there is one thread.
unsafe impl Sync for Joined {}

static JOINED: Joined = Joined(UnsafeCell::new(None));

/// The region and the slot, if the process has joined.
pub(crate) fn joined() -> Option<(Region<'static>, ProcessId)> {
    // SAFETY: written only while there is one thread.
    let region = unsafe { *JOINED.0.get() }?;
    // Relaxed, here and below: written only while there is one thread.
    let slot = home::slot().load(Ordering::Relaxed).checked_sub(1)?;
    Some((region, ProcessId(slot)))
}

/// Records the process's slot in a region, of which a process and its children have one.
pub(crate) fn set_joined(region: Region<'static>, process: ProcessId) {
    // SAFETY: the process has one thread: attach, or the child of a fork.
    unsafe {
        if (*JOINED.0.get()).is_none() {
            *JOINED.0.get() = Some(region);
        }
    }
    home::slot().store(process.0 + 1, Ordering::Relaxed);
}

/// Clears the record: the process has no slot.
pub(crate) fn leave() {
    home::slot().store(0, Ordering::Relaxed);
}

/// Copies what the gate needs often: the mounts' paths, the way to copy. Attach calls it while there is one
/// thread.
pub(crate) fn read_run(run: &'static Run) {
    // SAFETY: the process has one thread.
    unsafe { mounts::read(run) };
    ucopy::set_wide(run.avx2.load(Ordering::Relaxed) != 0); // Relaxed: immutable.
}

/// Maps the region. LIGHTPATH_GATE has its length once a gate has checked it.
pub(crate) fn map_region(fd: Fd, length: Option<usize>) -> Result<Region<'static>, &'static [u8]> {
    let region = match length {
        // SAFETY: the length was written by a gate that had opened the region, or by the launcher.
        Some(length) if length != 0 => unsafe { Region::attach(fd, length) }.map_err(RegionError::from),
        _ => Region::open(fd),
    };
    region.map_err(no_region)
}

/// The message for a region that cannot be used.
pub(crate) fn no_region(error: RegionError) -> &'static [u8] {
    match error {
        RegionError::System(Errno::EBADF) => b"the region's descriptor was closed",
        RegionError::System(Errno::ENOMEM) => b"no address space for the region",
        _ => b"the region cannot be mapped",
    }
}
