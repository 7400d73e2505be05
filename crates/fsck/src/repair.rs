//! Mending a region that nobody uses: first what any run would do, which gives back and finishes what the
//! dead left; if that is not enough, or the machine was started since, everything that can be derived is
//! [made anew](crate::rebuild).

use lp_abi::{Errno, Result};
use lp_region::{ProcessId, Region, RunId};
use lp_vfs::{Task, boot, clock, reap, reclaim};

use crate::rebuild::{Rebuild, Rebuilt};
use crate::{Report, Severity, check, is_in_use};

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// What was found before.
    pub before: Report,
    /// What is still wrong.
    pub after: Report,
    /// What has not kept its place.
    pub rebuilt: Rebuilt,
}

/// Makes a region sound that nobody uses, and that nobody may come to use meanwhile: the caller sees to that.
///
/// # Errors
/// `EBUSY` when a live process or run uses it; `ENOSPC` when directories have no place; those of taking part
/// in a run.
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

/// Makes anew all of a region that can be derived: what is fit for a region file after the machine crashed,
/// whose pages are of different ages, and for a damaged one. Nobody uses it, and nobody may come to
/// meanwhile.
///
/// Nothing is lost to a crash in the middle: what an unchanged file is made of stays as it is.
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

/// Gives back what the dead held.
fn recover(region: Region<'static>) -> Result<()> {
    with_task(region, |task| {
        reap::dead(task);
        reclaim::run(task);
    })
}

/// Takes part in the region for as long as `work` takes.
fn with_task<T>(region: Region<'static>, work: impl FnOnce(&Task<'static>) -> T) -> Result<T> {
    // No run's mounts concern it: it resolves no path.
    let process = boot::claim_process(region, RunId::NONE)?;
    let lane = boot::attach(region, process, std::process::id())?;
    let task = Box::new(Task::new(region, process, lane, clock::now));
    let done = work(&task);
    boot::exit(&task);
    Ok(done)
}
