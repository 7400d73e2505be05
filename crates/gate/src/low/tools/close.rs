//! Closing a descriptor of the kernel's.

use lp_abi::Fd;
use lp_abi::linux::__NR_close;

/// Closes a kernel descriptor.
pub(crate) fn close_number(fd: Fd) {
    // SAFETY: the number is the gate's own, or the program asked for it to be closed.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
}
