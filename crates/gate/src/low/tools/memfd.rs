//! Memfds that are executed.

use lp_abi::linux::{__NR_memfd_create, MFD_CLOEXEC, MFD_EXEC};
use lp_abi::{Errno, OwnedFd, Result};

/// A memfd that may be executed, close-on-exec. Where `vm.memfd_noexec` is 1 one may not be unless that was
/// asked for, which Linux before 6.3 does not know.
///
/// # Errors
/// Those of memfd_create(2).
///
/// # Safety
/// `name` must be NUL-terminated.
pub(crate) unsafe fn executable(name: *const u8) -> Result<OwnedFd> {
    // SAFETY: the caller guarantees the string.
    let make = |flags| unsafe { lp_abi::syscall!(__NR_memfd_create, name, flags) };
    let made = match make(MFD_CLOEXEC | MFD_EXEC) {
        Err(Errno::EINVAL) => make(MFD_CLOEXEC),
        made => made,
    };
    made.map(OwnedFd::new)
}
