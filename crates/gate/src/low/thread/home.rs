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

use crate::low::cover::patch::THUNKS;
use crate::low::live::signal::Actions;
use crate::low::start::attach::Rest;
use crate::low::thread::record::Thread;
use crate::low::thread::settings::Settings;

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
