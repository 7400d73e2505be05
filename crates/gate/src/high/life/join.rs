//! How a process that is [`apart`] joins the run.

use lp_vfs::{boot, reclaim};

use crate::High;
use crate::high::life::task::set_task;
use crate::high::run::apart::Joining;
use crate::high::run::{apart, region};
use crate::low::above::Above;
use crate::low::cover::patch;
use crate::low::thread::current;
use crate::low::thread::record::Thread;
use crate::low::tools::report;

/// One in this many slots makes its owner look for dead processes.
const REAP_EVERY: u32 = 64;

/// Joins the run. Does nothing if the process has joined or belongs to no run. `thread` is the process's only
/// thread, or that of a child in its memory.
#[cold]
pub(crate) fn join(thread: &Thread) {
    if !thread.task.get().is_null() {
        return;
    }
    let Some(joining) = apart::joining() else { return };
    if let Err(line) = enter(thread, joining) {
        report::refuse(&[line]);
    }
}

/// [`join`], but a process for which the region has no place stays apart.
#[cold]
pub(crate) fn join_if_possible(thread: &Thread) {
    if thread.task.get().is_null()
        && let Some(joining) = apart::joining()
    {
        let _ = enter(thread, joining);
    }
}

fn enter(thread: &Thread, joining: Joining) -> Result<(), &'static [u8]> {
    const FULL: &[u8] = b"the region has no place for this process";
    let region = match joining.region {
        Some(region) => region,
        None => region::map_region(joining.fd, Some(joining.length))?,
    };
    apart::keep_region(region);
    let process = boot::claim_own_process(region, joining.run).map_err(|_| FULL)?;
    let lane = boot::attach(region, process, thread.tid.get()).map_err(|_| FULL)?;
    let task = set_task(thread, region, process, lane);
    // A child in its parent's memory creates no threads, and its parent joins for itself.
    if thread.parent.get().is_null() {
        region::set_joined(region, process);
    }
    boot::arrive_late(task);
    if process.0.is_multiple_of(REAP_EVERY) {
        reclaim::dead(task);
    }
    patch::change_calls(&High::calls(thread));
    Ok(())
}

/// After a child in this process's memory is gone. If the child joined, this process joins too, because its
/// calls go through the table that needs a task.
pub(crate) fn follow_child(thread: &Thread) {
    if apart::is_mapped() {
        join(thread);
    }
}

/// The child of a limited process that had nothing of ours leaves the run.
pub(crate) fn leave(thread: &Thread) {
    thread.task.set(core::ptr::null_mut());
    current::refresh();
    region::leave();
}
