//! This process as one of a run's.

use lp_region::{LaneId, ProcessId, Region, RunId};
use lp_vfs::{Task, below, boot};

/// Has this process take part in a run for the length of a call.
pub(super) fn take_part<T>(
    region: Region<'static>,
    run: RunId,
    call: impl FnOnce(&Task<'static>) -> T,
) -> lp_abi::Result<T> {
    let process = boot::claim_own_process(region, run)?;
    let lane = boot::attach(region, process, std::process::id())?;
    let task = task_of(region, process, lane);
    let done = call(&task);
    boot::exit(&task);
    Ok(done)
}

/// The task of this process, in the slot that it has claimed.
fn task_of(region: Region<'static>, process: ProcessId, lane: LaneId) -> Box<Task<'static>> {
    let mut task = Box::new(Task::new(region, process, lane, lp_vfs::clock::now));
    task.sources =
        &lp_vfs::task::Sources { below: below::take, through: below::through::read, mappings: |_, _| {} };
    task
}
