//! The slots whose working directory, root directory and umask processes share
//! ([`crate::caller::directories`]).
//!
//! A home is the slot of the process that first shared its own words. A process that stops sharing while
//! others use its slot gets a slot without a process as its home. A home is emptied, but not freed, while
//! another process names it: it stays as that of a dead process, and whoever stops using it, or a later
//! reaper, tries again. `cwd`, `root` and `umask` of a home belong to all processes that name it.

use lp_region::life::SlotState;
use lp_region::process::Process;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{ProcessId, Region};

use crate::caller::task::Task;

/// Copies the three words from one slot to another, whose process does not use its own meanwhile.
pub(crate) fn copy(region: Region<'_>, from: &Process, to: &Process) {
    loop {
        let (cwd, root) = (from.cwd.load(Acquire), from.root.load(Acquire));
        to.root.store(root, Release);
        to.cwd.store(cwd, Release);
        to.umask.store(from.umask.load(Relaxed), Relaxed); // Relaxed: one word, as seen.
        // A sweep may have passed `to`. If another process or thread has left the directories since, it may
        // pass `from` as well. PAIRS: the loads around the scan in `sweep`.
        region.header().moves.fetch_add(1, Release);
        if (from.cwd.load(Acquire), from.root.load(Acquire)) == (cwd, root) {
            return;
        }
    }
}

/// Whether threads of a process use the words of a slot that is not its own.
fn is_kept(region: Region<'_>, home: ProcessId) -> bool {
    // PAIRS: the release stores in `life::parted`.
    let keeper = ProcessId(region.process(home).keeper.load(Acquire));
    let lives = || matches!(region.process(keeper).life.get().state(), SlotState::Born | SlotState::Live);
    keeper.is_some() && keeper != home && lives()
}

/// Whether somebody else than its own process uses the words of a slot. True as well if that may change
/// meanwhile.
pub(crate) fn is_in_use(region: Region<'_>, home: ProcessId) -> bool {
    is_kept(region, home) || is_shared(region, home)
}

/// [`is_in_use`], but by another process.
pub(crate) fn is_shared(region: Region<'_>, home: ProcessId) -> bool {
    if region.process(home).lends.load(Acquire) == 0 {
        return false;
    }
    // A new user is named by its parent, which uses the same home: if the scan passes the child's slot before
    // it is claimed, and the parent's after its end, this number has changed. PAIRS: the release in `share`.
    let before = region.header().moves.load(Acquire);
    let uses = |id: ProcessId| {
        let process = region.process(id);
        let lives = || matches!(process.life.get().state(), SlotState::Born | SlotState::Live);
        id != home && process.home.load(Acquire) == home.0 && lives()
    };
    region.processes().any(uses) || region.header().moves.load(Acquire) != before
}

/// Whether what a slot says of directories counts: its process lives, or one that uses its words.
pub(crate) fn counts(task: &Task<'_>, id: ProcessId) -> bool {
    let lives = |id: ProcessId| !task.region.process_is_dead(id, task.process_id);
    let uses = |other: ProcessId| task.region.process(other).home.load(Acquire) == id.0 && lives(other);
    let keeper = ProcessId(task.region.process(id).keeper.load(Acquire)); // PAIRS: as in `is_kept`.
    // Relaxed: a process that shares its words at this moment lives.
    lives(id)
        || keeper.is_some() && keeper != id && lives(keeper)
        || task.region.process(id).lends.load(Relaxed) != 0 && task.region.processes().any(uses)
}
