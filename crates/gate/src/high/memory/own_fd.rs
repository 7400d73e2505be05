//! Descriptors by which the gate asks the kernel about the process's memory: whether it may have them, and
//! where they are.

use lp_abi::linux::{__NR_fcntl, __NR_prctl, F_DUPFD_CLOEXEC};
use lp_abi::prctl::PR_GET_SECCOMP;
use lp_abi::{Fd, Result};
use lp_region::process::Process;
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::task::Task;

use crate::low::tools::close::close_number;

/// Bit of a descriptor's word: the descriptor, if there is one, is not used.
pub(super) const STOPPED: u32 = 1 << 31;

/// A descriptor of the process's, in a word of `Process::gate_words`: its number plus one, and bits.
pub(crate) struct OwnFd {
    /// Index of the word.
    pub(super) word: usize,
    /// The bits of the number.
    pub(super) number: u32,
}

impl OwnFd {
    pub(super) fn word<'t>(&self, task: &'t Task) -> &'t AtomicU32 {
        &task.process.gate_words[self.word]
    }

    /// The descriptor's number; `None` if there is none.
    pub(crate) fn own(&self, task: &Task) -> Option<Fd> {
        // Relaxed, here and below: the process's own word, changed with the list of mappings locked or by its
        // only thread.
        let number = self.word(task).load(Ordering::Relaxed) & self.number;
        number.checked_sub(1).map(|number| Fd::new(number as i32))
    }

    /// Whether `fd` is the descriptor of `process`.
    #[inline]
    pub(crate) fn is(&self, process: &Process, fd: Fd) -> bool {
        process.gate_words[self.word].load(Ordering::Relaxed) & self.number == fd.raw() as u32 + 1
    }

    /// The descriptor, made by `make` if there is none yet; `None` if the process cannot have one.
    pub(super) fn get(&self, task: &Task, make: impl FnOnce(&Task) -> Option<Fd>) -> Option<Fd> {
        match self.word(task).load(Ordering::Relaxed) {
            0 => make(task),
            word if word & STOPPED != 0 => None,
            _ => self.own(task),
        }
    }
}

/// Whether the process may make calls of the gate's own. A filter from outside the run may kill it for one
/// that the launcher has not tried. Filters that processes of the run install are known (`missing::stop`).
pub(crate) fn may_call() -> bool {
    // SAFETY: no pointer is passed.
    let is_filtered = || unsafe { lp_abi::syscall!(__NR_prctl, PR_GET_SECCOMP) }.is_ok_and(|mode| mode != 0);
    !lp_abi::sys::is_limited() && !is_filtered()
}

/// Moves a descriptor beside the region's, out of the program's way.
///
/// # Errors
/// `EMFILE`; the descriptor is closed in any case.
pub(crate) fn beside_region(task: &Task, low: Fd) -> Result<Fd> {
    let min = task.region.fd().raw() + 2;
    // SAFETY: F_DUPFD_CLOEXEC only creates a descriptor.
    let high = unsafe { lp_abi::syscall!(__NR_fcntl, low, F_DUPFD_CLOEXEC, min) };
    close_number(low);
    high.map(|fd| Fd::new(fd as i32))
}
