//! Working directory, root directory and umask of a process, which processes may share: clone(2) with
//! `CLONE_FS`. Like `fs_struct`.
//!
//! Processes that share them use the words of one slot, their *home*, which each names in [`Process::home`].
//! A change is one store there, as among threads, so nobody waits and a death leaves nothing half done.
//! `life::home` says how long a home lasts. A thread may have them apart from its process (`life::parted`).

use lp_region::process::Process;
use lp_region::sync::Ordering;
use lp_region::{ProcessId, Region};

/// The slot with the words that a process uses.
pub fn home(region: Region<'_>, id: ProcessId) -> ProcessId {
    // PAIRS: the release stores in `life::sharing`.
    match region.process(id).home.load(Ordering::Acquire) {
        0 => id,
        home => ProcessId(home),
    }
}

/// That slot's record. Nothing else in it has a meaning for the process.
pub fn of(region: Region<'_>, id: ProcessId) -> &Process {
    region.process(home(region, id))
}

/// Whether other processes may change them.
pub fn are_shared(process: &Process) -> bool {
    process.home.load(Ordering::Acquire) != 0 // PAIRS: as in `home`.
}
