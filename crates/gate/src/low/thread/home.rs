//! [`Home`]: what the gate keeps for the process, in one mapping at a fixed address.
//!
//! Most processes touch its first page only. Attaching is a large part of the cost of an exec, and a first
//! touch of a page costs a microsecond. The layout therefore follows use, not topic.

use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use lp_abi::image::{GATE_PAGE, GatePage, TracerDoor};
use lp_abi::linux::{
    __NR_mmap, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};
use lp_abi::{Errno, Result};

use crate::low::object::objects::Auxiliary;
use crate::low::thread::actions::Actions;
use crate::low::thread::record::Thread;
use crate::low::thread::settings::Settings;

/// What is still to be patched where the gate is part of the C library and the program has loaded nothing
/// itself: the loader, whose calls do not matter until then.
#[derive(Clone, Copy)]
pub(crate) struct Rest {
    pub(crate) auxiliary: Auxiliary,
    /// Covered objects at the start of the loader's list; they are never unloaded.
    pub(crate) known: usize,
}

/// The gate's memory in the process. Private; a fork's child has a copy.
#[repr(C)]
pub(crate) struct Home {
    /// Read by the thunks.
    pub(crate) page: GatePage,
    /// Read by tracers.
    pub(crate) door: TracerDoor,
    /// Set by attach, constant afterwards.
    pub(crate) settings: Settings,
    /// The process's slot in its run's region, plus one; 0 without one. Only the high half uses it.
    pub(crate) slot: AtomicU32,
    /// Where calls are not trapped: the address, and the number of bytes. Zeros if none are trapped.
    pub(crate) untrapped: [AtomicUsize; 2],
    /// Signal actions.
    pub(crate) actions: Actions,
    /// What is still to be patched.
    pub(crate) rest: Option<Rest>,
    /// The first thread's record.
    pub(crate) first: MaybeUninit<Thread>,
}

const _: () = assert!(offset_of!(Home, page) == 0 && offset_of!(Home, door) == size_of::<GatePage>());
const _: () = assert!(offset_of!(Home, first) + Thread::HEAD <= 4096);

/// The gate's memory, once [`map`] has mapped it.
pub(crate) const fn home() -> *mut Home {
    GATE_PAGE as *mut Home
}

/// Its address and length.
pub(crate) const fn extent() -> (usize, usize) {
    (GATE_PAGE, size_of::<Home>().next_multiple_of(4096))
}

/// Maps it, zeroed.
///
/// # Errors
/// Those of mmap(2); `EEXIST` if the program has a mapping there.
pub(crate) fn map() -> Result<()> {
    let (protection, flags) =
        (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE);
    let (at, bytes) = extent();
    // SAFETY: MAP_FIXED_NOREPLACE: the new mapping replaces none.
    let mapped = unsafe { lp_abi::syscall!(__NR_mmap, at, bytes, protection, flags, usize::MAX, 0) }?;
    if mapped != at {
        return Err(Errno::EEXIST);
    }
    // Write first: a page that is read first faults twice. SAFETY: the page was just mapped.
    unsafe { (*home()).page.entry = 0 };
    Ok(())
}

/// The settings.
pub(crate) fn settings() -> &'static Settings {
    // SAFETY: attach maps the home and alone changes the settings, before anything else runs.
    unsafe { &(*home()).settings }
}

/// The settings, for attach to fill in.
///
/// # Safety
/// The process must have one thread, its home must be mapped, and no other reference to the settings may
/// exist.
pub(crate) unsafe fn fill_settings() -> &'static mut Settings {
    // SAFETY: the caller guarantees one thread, a mapped home, and no other reference.
    unsafe { &mut (*home()).settings }
}

/// The word with the process's slot.
pub(crate) fn slot() -> &'static AtomicU32 {
    // SAFETY: attach maps the home before anything else runs, and the field is an atomic.
    unsafe { &(*home()).slot }
}

/// The words about trapped calls.
pub(crate) fn untrapped() -> &'static [AtomicUsize; 2] {
    // SAFETY: attach maps the home before anything else runs, and the field is atomics.
    unsafe { &(*home()).untrapped }
}

/// Whether the process's calls are trapped.
pub(crate) fn traps() -> bool {
    untrapped()[1].load(Ordering::Relaxed) != 0 // Relaxed: set while the process has one thread.
}

/// The process's own actions.
pub(crate) fn actions() -> *const Actions {
    // SAFETY: only the address of a field is taken, within the home.
    unsafe { &raw const (*home()).actions }
}
