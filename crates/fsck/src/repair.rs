//! Repairs a region that nobody uses. First it does what any run would do, which frees and finishes what the
//! dead left. If that is not enough, or the machine has been rebooted since, it [rebuilds](crate::rebuild)
//! everything that can be derived.

use lp_abi::{Errno, Result};
use lp_region::{ProcessId, Region, RunId};
use lp_vfs::{Task, boot, clock, reclaim};

use crate::rebuild::{Rebuild, Rebuilt};
use crate::{Report, Severity, check, is_in_use};

/// Result of a repair.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// The findings before.
    pub before: Report,
    /// The remaining findings.
    pub after: Report,
    /// What was not kept in its place.
    pub rebuilt: Rebuilt,
}

/// Repairs a region that nobody uses. The caller must ensure that nobody starts to use it meanwhile.
///
/// # Errors
/// `EBUSY` when a live process or run uses it; `ENOSPC` when directories have no space; those of joining a
/// run.
pub fn repair(region: Region<'static>) -> Result<Repaired> {
    if is_in_use(region) {
        return Err(Errno::EBUSY);
    }
    let before = check(region, ProcessId::NONE);
    let mut repaired = Repaired { after: before.clone(), before, rebuilt: Rebuilt::default() };
    let is_old = region.is_of_former_boot();
    let worst = repaired.before.worst();
    if !is_old && worst.is_some_and(|worst| worst > Severity::Structure) {
        recover(region)?;
        repaired.after = check(region, ProcessId::NONE);
    }
    if is_old || !repaired.after.findings.is_empty() {
        repaired.rebuilt = rebuild(region)?;
        repaired.after = check(region, ProcessId::NONE);
    }
    Ok(repaired)
}

/// Rebuilds everything in a region that can be derived: for a region file after a crash of the machine, whose
/// pages are of different ages, and for a damaged region. Nobody uses it, and the caller must ensure that
/// nobody starts to.
///
/// A crash in the middle loses nothing, because the records of an unchanged file stay as they are.
///
/// # Errors
/// As [`repair`].
pub fn rebuild(region: Region<'static>) -> Result<Rebuilt> {
    let found = Rebuild::gather(region);
    found.reset();
    let rebuilt = with_task(region, |task| found.link(task))??;
    region.mark_boot();
    Ok(rebuilt)
}

/// Frees what the dead held.
fn recover(region: Region<'static>) -> Result<()> {
    with_task(region, |task| {
        reclaim::dead(task);
        reclaim::run(task);
    })
}

/// Takes part in the region while `work` runs.
fn with_task<T>(region: Region<'static>, work: impl FnOnce(&Task<'static>) -> T) -> Result<T> {
    // It resolves no path, so no run's mounts are needed.
    let process = boot::claim_process(region, RunId::NONE)?;
    let lane = boot::attach(region, process, std::process::id())?;
    let task = Box::new(Task::new(region, process, lane, clock::now));
    let done = work(&task);
    boot::exit(&task);
    Ok(done)
}
