//! The namespaces of the calling process, which the kernel names by inode numbers: namespaces(7).

use core::ffi::CStr;
use core::mem::MaybeUninit;

use lp_abi::linux::{__NR_stat, stat};

/// The initial user namespace (`PROC_USER_INIT_INO` of linux/proc_ns.h).
const FIRST_USER: u32 = 0xefff_fffd;

/// The caller's pid namespace; 0 without /proc.
pub(crate) fn own_pid() -> u32 {
    number_of(c"/proc/self/ns/pid")
}

/// Whether the caller is in the initial user namespace. Without /proc, it is.
pub(crate) fn is_first_user() -> bool {
    matches!(number_of(c"/proc/self/ns/user"), 0 | FIRST_USER)
}

/// The number of a namespace; 0 without /proc.
fn number_of(path: &CStr) -> u32 {
    let mut found = MaybeUninit::<stat>::zeroed();
    // SAFETY: the path is NUL-terminated, and the kernel writes within `found`.
    unsafe {
        match lp_abi::syscall!(__NR_stat, path.as_ptr(), found.as_mut_ptr()) {
            Ok(_) => found.assume_init().st_ino as u32,
            Err(_) => 0,
        }
    }
}
