//! The calls that the gate may make itself in a process that has limited itself.

use lp_abi::linux::*;

use crate::low::thread::{current, tls};

/// Limits the process from here on.
pub(crate) fn begin() {
    lp_abi::sys::limit(permits);
}

/// Lifts the limit, because the filter was not installed.
pub(crate) fn end() {
    lp_abi::sys::unlimit();
}

/// Calls that a handler makes with the program's own number, and with arguments equivalent to the program's.
const SAME: &[u32] = &[
    __NR_close,
    __NR_close_range,
    __NR_dup2,
    __NR_dup3,
    __NR_munmap,
    __NR_mprotect,
    __NR_rt_sigaction,
    __NR_poll,
    __NR_ppoll,
    __NR_select,
    __NR_pselect6,
    __NR_fsync,
    __NR_fdatasync,
    __NR_syncfs,
    __NR_chdir,
    __NR_fchdir,
    __NR_umask,
    __NR_prctl,
    __NR_seccomp,
];

/// Whether the gate may make call `nr`: only while the program is making it.
fn permits(nr: u32) -> bool {
    // SAFETY: null or the calling thread's own record.
    let current = unsafe { current::thread().as_ref() };
    current.is_some_and(|thread| tls::in_gate() != 0 && thread.limited_to.get() == nr && SAME.contains(&nr))
}
