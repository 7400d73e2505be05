//! [`Home`]: what the gate keeps for the process, in one mapping at a fixed address.
//!
//! Most processes touch its first page only: attaching is a good part of what an exec costs, and a page first touched is
//! a microsecond. So it is laid out by use, not by topic.

use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::AtomicUsize;

use lp_abi::image::{GATE_PAGE, GatePage};
use lp_abi::linux::{
    __NR_mmap, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};
use lp_abi::{Errno, Result};

use crate::low::object::objects::Auxiliary;
use crate::low::thread::actions::Actions;
use crate::low::thread::record::Thread;
use crate::low::thread::settings::Settings;

/// What waits to be patched in a process that has not met a mount nor loaded anything, where the gate is part
/// of the C library: the loader, whose calls do not matter there.
pub(crate) struct Rest {
    pub(crate) auxiliary: Auxiliary,
    /// Objects at the start of the loader's list that are covered; they are never unloaded.
    pub(crate) known: usize,
}

/// Thunk pages that can be remembered.
pub(crate) const THUNKS: usize = 64;

/// The process's memory. Private; a fork's child has a copy.
#[repr(C)]
pub(crate) struct Home {
    /// Read by the thunks.
    pub(crate) page: GatePage,
    /// Set by attach, constant afterwards.
    pub(crate) settings: Settings,
    /// Actions of signals.
    pub(crate) actions: Actions,
    /// What is still to be patched.
    pub(crate) rest: Option<Rest>,
    /// The first thread's record.
    pub(crate) first: MaybeUninit<Thread>,
    /// Where thunks are.
    pub(crate) thunks: [AtomicUsize; THUNKS],
}

const _: () = assert!(offset_of!(Home, page) == 0);
const _: () = assert!(offset_of!(Home, first) + Thread::HEAD <= 4096);

/// The process's memory, once [`map`] has made it.
pub(crate) const fn home() -> *mut Home {
    GATE_PAGE as *mut Home
}

/// Maps it: zeros.
///
/// # Errors
/// Those of mmap(2); `EEXIST` when the program has something there.
pub(crate) fn map() -> Result<()> {
    let (protection, flags) =
        (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE);
    let bytes = size_of::<Home>().next_multiple_of(4096);
    // SAFETY: a new mapping where nothing is.
    let at = unsafe { lp_abi::syscall!(__NR_mmap, GATE_PAGE, bytes, protection, flags, usize::MAX, 0) }?;
    if at != GATE_PAGE {
        return Err(Errno::EEXIST);
    }
    // Written before it is read: a page read first is faulted in twice.
    // SAFETY: just mapped.
    unsafe { (*home()).page.entry = 0 };
    Ok(())
}

/// The settings.
pub(crate) fn settings() -> &'static Settings {
    // SAFETY: mapped by attach, which alone changes them, before anything else runs.
    unsafe { &(*home()).settings }
}

/// The settings, for attach to fill in.
///
/// # Safety
/// The process has one thread, its home is mapped, and no other reference is alive.
pub(crate) unsafe fn fill_settings() -> &'static mut Settings {
    // SAFETY: the process has one thread, its home is mapped, and no other reference is alive, by this
    // function's contract.
    unsafe { &mut (*home()).settings }
}

/// The actions of the process itself.
pub(crate) fn actions() -> *const Actions {
    // SAFETY: an address in the process's home.
    unsafe { &raw const (*home()).actions }
}
