//! Processes that have not met a mount yet.
//!
//! Most programs of a run never touch a mount. Mapping the region, taking a slot and a lane in it and giving them back would
//! cost such a program more than all else that the gate does. So a process starts *apart*: it has the run's record, its
//! paths are looked at, and all its calls are the kernel's ([`crate::high::table::apart`]). The first that concerns a mount has
//! the process [`join`] the run, and is then looked up once more, in the table of all calls.
//!
//! A process joins as well before it makes a thread: whoever is apart is alone with its memory. A child of a
//! process that has joined has a slot, and keeps it over exec; one of a process that is apart is apart, and
//! so is what it executes.

use core::cell::UnsafeCell;

use lp_region::process::Run;
use lp_region::sync::Ordering;
use lp_region::{Front, Region, RunId};
use lp_vfs::{boot, reap};

use crate::high::above;
use crate::high::fd::placeholder;
use crate::low::cover::patch;
use crate::low::exec::known::Known;
use crate::low::start::attach;
use crate::low::thread::record::Thread;
use crate::low::tools::report;
use crate::low::tools::text::Writer;

/// What stands before the number of a run, where LIGHTPATH_GATE has a slot's otherwise.
pub(crate) const RUN: u8 = b'@';
/// Of so many slots that are taken, one has its owner look for dead processes.
const REAP_EVERY: u32 = 64;

/// What a process that is apart knows of its run.
struct State {
    /// The region's descriptor.
    fd: i32,
    /// The run's flights; see [`lp_vfs::flight`].
    flights: i32,
    /// The lowest of the gate's own descriptors: the life file's is above the region's.
    lowest: i32,
    length: usize,
    run: RunId,
    front: Front<'static>,
    /// The region, once it is mapped.
    region: Option<Region<'static>>,
}

struct Cell(UnsafeCell<Option<State>>);

// SAFETY: changed at attach and by `join`, in processes with one thread.
unsafe impl Sync for Cell {}

static STATE: Cell = Cell(UnsafeCell::new(None));

fn state() -> Option<&'static State> {
    // SAFETY: one thread, or nothing changes any more.
    unsafe { (*STATE.0.get()).as_ref() }
}

/// Makes the process, which is being attached, one that is apart; the record of its run.
///
/// # Errors
/// One line that says why not.
pub(crate) fn start(fd: i32, run: u32, length: usize) -> Result<&'static Run, &'static [u8]> {
    // SAFETY: LIGHTPATH_GATE names a region.
    let front = unsafe { Front::attach(fd) }.map_err(|errno| above::no_region(errno.into()))?;
    let record = front.run(RunId(run));
    let flights = record.flights.load(Ordering::Relaxed) as i32 - 1; // Relaxed: immutable.
    let lowest = if flights < 0 { fd } else { fd.min(flights) };
    let state = State { fd, flights, lowest, length, run: RunId(run), front, region: None };
    // SAFETY: attach: one thread.
    unsafe { *STATE.0.get() = Some(state) };
    above::read_run(record);
    Ok(record)
}

/// Has the process take part in the run, unless it does already or has no part in any. `thread` is its only one then, or that of
/// a child in its memory.
#[cold]
pub(crate) fn join(thread: &mut Thread) {
    if !thread.task.is_null() {
        return;
    }
    // SAFETY: whoever is apart has one thread.
    let Some(state) = (unsafe { &mut *STATE.0.get() }) else { return };
    if let Err(line) = enter(thread, state) {
        report::refuse(&[line]);
    }
}

fn enter(thread: &mut Thread, state: &mut State) -> Result<(), &'static [u8]> {
    const FULL: &[u8] = b"the region has no place for this process";
    let region = match state.region {
        Some(region) => region,
        None => above::map_region(state.fd, Some(state.length))?,
    };
    state.region = Some(region);
    let process = boot::claim_own_process(region, state.run).map_err(|_| FULL)?;
    let lane = boot::attach(region, process, thread.tid).map_err(|_| FULL)?;
    let task = above::set_task(thread, region, process, lane);
    // A child in its parent's memory makes no threads, and its parent joins for itself.
    if thread.parent.is_null() {
        above::set_home(region, process);
    }
    boot::arrive_late(task);
    if process.0.is_multiple_of(REAP_EVERY) {
        reap::dead(task);
    }
    attach::cover_rest();
    let (calls, way) = attach::calls_of(task);
    patch::fill_gate_page(calls, way);
    Ok(())
}

/// After a child in this process's memory is gone: if it has joined, all calls go through the table that wants a task.
pub(crate) fn follow_child(thread: &mut Thread) {
    if state().is_some_and(|state| state.region.is_some()) {
        join(thread);
    }
}

/// Whether `fd` is the gate's own.
pub(crate) fn is_hidden(fd: i32) -> bool {
    state().is_some_and(|state| {
        fd >= state.lowest && (placeholder::is_regions(state.fd, fd) || fd == state.flights)
    })
}

/// The lowest of the gate's own descriptors.
pub(crate) fn lowest() -> i32 {
    state().map_or(-1, |state| state.lowest)
}

/// The gate's own descriptors.
pub(crate) fn hidden() -> [i32; 3] {
    state().map_or([-1; 3], |state| [state.fd, state.fd + 1, state.flights])
}

/// The region's descriptor and its length.
pub(crate) fn extent() -> Option<(i32, usize)> {
    state().map(|state| (state.fd, state.length))
}

/// The record of the run.
pub(crate) fn run() -> Option<&'static Run> {
    state().map(|state| state.front.run(state.run))
}

/// The programs that processes of the region have looked at before an exec.
pub(crate) fn known_programs() -> Option<Known<'static>> {
    state().map(|state| Known(&state.front.header().programs))
}

/// Writes what LIGHTPATH_GATE must be for an image that a process which is apart execs, without the name.
pub(crate) fn write_gate_value(text: &mut Writer<'_>) {
    let Some(state) = state() else { return };
    text.push_decimal(state.fd as u64);
    text.push(b":");
    text.push(&[RUN]);
    text.push_decimal(u64::from(state.run.0));
    text.push(b":");
    text.push_decimal(state.length as u64);
}
