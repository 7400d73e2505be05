//! Mending a region that nobody uses: first what any run would do, which gives back and finishes what the dead left; if
//! that is not enough, everything that can be derived is [made anew](crate::rebuild).

use lp_abi::{Errno, Result};
use lp_region::{ProcessId, Region, RunId};
use lp_vfs::{Task, boot, clock, reap, reclaim};

use crate::rebuild::Rebuild;
use crate::{Report, Severity, check, is_in_use};

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repaired {
    /// What was found before.
    pub before: Report,
    /// What is still wrong.
    pub after: Report,
    /// Names that led nowhere and are gone.
    pub dropped: u64,
}

/// Makes a region sound that nobody uses, and that nobody may come to use meanwhile: the caller sees to that.
///
/// # Errors
/// `EBUSY` when a live process or run uses it; `ENOSPC` when directories have no place; those of taking part in a run.
pub fn repair(region: Region<'static>) -> Result<Repaired> {
    if is_in_use(region) {
        return Err(Errno::EBUSY);
    }
    let before = check(region, ProcessId::NONE);
    let mut repaired = Repaired { after: before.clone(), before, dropped: 0 };
    let worst = repaired.before.worst();
    if worst.is_some_and(|worst| worst > Severity::Structure) {
        recover(region)?;
        repaired.after = check(region, ProcessId::NONE);
    }
    if !repaired.after.findings.is_empty() {
        let rebuild = Rebuild::gather(region);
        rebuild.reset();
        repaired.dropped = with_task(region, |task| rebuild.link(task))?;
        repaired.after = check(region, ProcessId::NONE);
    }
    Ok(repaired)
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
