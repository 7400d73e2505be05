//! Processes that have not met a mount.
//!
//! Most programs of a run never touch a mount. Mapping the region, taking a slot and a lane and giving them
//! back would cost such a program more than everything else that the gate does. So a process starts *apart*:
//! it has the run's record, its paths are checked, and all its calls go to the kernel
//! ([`crate::high::table::apart`]). The first call that concerns a mount makes the process [`join`] the run,
//! and is then looked up again, in the table of all calls.
//!
//! A process also joins before it creates a thread: a process that is apart is alone with its memory. A child
//! of a process that has joined has a slot, and keeps it across exec. A child of a process that is apart is
//! apart, and so is what it executes.

use core::cell::{Cell, UnsafeCell};
use lp_abi::Fd;
use lp_region::records::PROGRAMS;

use lp_region::process::Run;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{Front, Region, RunId};

use crate::high::run::region;
use lp_abi::text::Writer;

/// Precedes the number of a run in LIGHTPATH_GATE, in the place of a slot's number.
pub(crate) const RUN: u8 = b'@';

/// A process's knowledge of its run while it is apart.
struct State {
    /// The region's descriptor.
    fd: Fd,
    /// The descriptor of the run's flights; see [`lp_vfs::flight`].
    flights: Fd,
    /// The lowest of the gate's own descriptors. The life file's is the one above the region's.
    lowest: Fd,
    length: usize,
    run: RunId,
    front: Front<'static>,
    /// The region, once it is mapped.
    region: Cell<Option<Region<'static>>>,
}

/// What a process that joins the run needs.
pub(crate) struct Joining {
    pub(crate) fd: Fd,
    pub(crate) length: usize,
    pub(crate) run: RunId,
    /// Set if a child in this memory has mapped the region already.
    pub(crate) region: Option<Region<'static>>,
}

struct Global(UnsafeCell<Option<State>>);

// SAFETY: written at attach and by `join`, in processes with one thread.
unsafe impl Sync for Global {}

static STATE: Global = Global(UnsafeCell::new(None));

fn state() -> Option<&'static State> {
    // SAFETY: the process has one thread, or the state is no longer written.
    unsafe { (*STATE.0.get()).as_ref() }
}

/// Makes the process, which is being attached, one that is apart. Returns the record of its run.
///
/// # Errors
/// One line with the reason.
pub(crate) fn start(fd: Fd, run: u32, length: usize) -> Result<&'static Run, &'static [u8]> {
    // SAFETY: LIGHTPATH_GATE names the descriptor of a region.
    let front = unsafe { Front::attach(fd) }.map_err(|errno| region::no_region(errno.into()))?;
    let record = front.run(RunId(run));
    let flights = record.flights.load(Ordering::Relaxed).wrapping_sub(1); // Relaxed: immutable.
    let flights = Fd::new(flights as i32);
    let lowest = if flights == Fd::NONE { fd } else { fd.min(flights) };
    let state = State { fd, flights, lowest, length, run: RunId(run), front, region: Cell::new(None) };
    // SAFETY: attach: the process has one thread.
    unsafe { *STATE.0.get() = Some(state) };
    region::read_run(record);
    Ok(record)
}

/// Whether `fd` is the region's descriptor `region` or the life file's, which is the next number. The same
/// for the flights' and the shelf's.
#[inline(always)]
pub(crate) fn is_regions(region: Fd, fd: Fd) -> bool {
    fd.raw().wrapping_sub(region.raw()) as u32 <= 1 && region.raw() >= 0
}

/// Whether `fd` is one of the gate's own.
pub(crate) fn is_hidden(fd: Fd) -> bool {
    state().is_some_and(|state| {
        fd >= state.lowest && (is_regions(state.fd, fd) || is_regions(state.flights, fd))
    })
}

/// The lowest of the gate's own descriptors.
pub(crate) fn lowest() -> Fd {
    state().map_or(Fd::NONE, |state| state.lowest)
}

/// The gate's own descriptors.
pub(crate) fn hidden() -> [Fd; 4] {
    let pair = |fd: Fd| if fd == Fd::NONE { [fd; 2] } else { [fd, fd.next()] };
    let [region, flights] = state().map_or([[Fd::NONE; 2]; 2], |state| [state.fd, state.flights].map(pair));
    [region[0], region[1], flights[0], flights[1]]
}

/// What the process needs to join; `None` where there is no run.
pub(crate) fn joining() -> Option<Joining> {
    state().map(|state| Joining {
        fd: state.fd,
        length: state.length,
        run: state.run,
        region: state.region.get(),
    })
}

/// Records the region, which has been mapped.
pub(crate) fn keep_region(region: Region<'static>) {
    if let Some(state) = state() {
        state.region.set(Some(region));
    }
}

/// Whether the region is mapped.
pub(crate) fn is_mapped() -> bool {
    state().is_some_and(|state| state.region.get().is_some())
}

/// The region's descriptor and its length.
pub(crate) fn extent() -> Option<(Fd, usize)> {
    state().map(|state| (state.fd, state.length))
}

/// The record of the run.
pub(crate) fn run() -> Option<&'static Run> {
    state().map(|state| state.front.run(state.run))
}

/// The region's cache of programs that processes examined before an exec.
pub(crate) fn known_programs() -> Option<&'static [AtomicU64; PROGRAMS]> {
    state().map(|state| &state.front.header().programs)
}

/// Writes the value of LIGHTPATH_GATE for an image that a process which is apart execs, without the name.
pub(crate) fn write_gate_value(text: &mut Writer<'_>) {
    let Some(state) = state() else { return };
    text.push_decimal(state.fd.raw() as u64);
    text.push(b":");
    text.push(&[RUN]);
    text.push_decimal(u64::from(state.run.0));
    text.push(b":");
    text.push_decimal(state.length as u64);
}
