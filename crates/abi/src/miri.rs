//! The kernel, as far as Miri's tests need one: memory, ids, and barriers. Everything else is `ENOSYS`.

#![allow(non_upper_case_globals, reason = "the kernel's names")]

use core::ffi::{c_int, c_void};
use core::sync::atomic::{Ordering, fence};

use crate::Errno;
use crate::linux::{
    __NR_getegid, __NR_geteuid, __NR_getgid, __NR_getpid, __NR_getuid, __NR_madvise, __NR_membarrier,
    __NR_mmap, __NR_munmap, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, length: usize) -> c_int;
}

/// [`crate::sys::syscall6`] without a kernel.
///
/// # Safety
/// As there.
pub(crate) unsafe fn syscall6(nr: u32, [a, b, ..]: [usize; 6]) -> isize {
    match nr {
        __NR_mmap => {
            let protection = (PROT_READ | PROT_WRITE) as c_int;
            let flags = (MAP_PRIVATE | MAP_ANONYMOUS) as c_int;
            // SAFETY: a new mapping of private memory.
            unsafe { mmap(core::ptr::null_mut(), b, protection, flags, -1, 0) }.expose_provenance() as isize
        }
        // SAFETY: the caller uses nothing in the mapping any more.
        __NR_munmap => unsafe { munmap(core::ptr::with_exposed_provenance_mut(a), b) as isize },
        __NR_madvise => 0,
        __NR_getpid => 1,
        __NR_getuid | __NR_geteuid | __NR_getgid | __NR_getegid => 0,
        __NR_membarrier => {
            fence(Ordering::SeqCst);
            0
        }
        _ => Errno::ENOSYS.to_ret(),
    }
}
