//! One line on stderr for the user.

use lp_abi::linux::{__NR_exit_group, __NR_writev, iovec};

/// Writes `lightpath: ` and the parts as one line to the kernel's descriptor 2. Errors are ignored.
pub fn line(parts: &[&[u8]]) {
    let mut vector: [iovec; 8] = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; 8];
    let mut count = 0;
    let all = core::iter::once(&b"lightpath: "[..])
        .chain(parts.iter().copied())
        .chain(core::iter::once(&b"\n"[..]));
    for (slot, part) in vector.iter_mut().zip(all) {
        *slot = iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() as _ };
        count += 1;
    }
    // SAFETY: the kernel reads the parts, which outlive the call.
    let _ = unsafe { lp_abi::syscall!(__NR_writev, 2, vector.as_ptr(), count) };
}

/// Reports with [`line()`] that the program cannot be covered, and ends the process with status 126.
pub fn refuse(parts: &[&[u8]]) -> ! {
    line(parts);
    loop {
        // SAFETY: exit_group(2) takes no pointers.
        let _ = unsafe { lp_abi::syscall!(__NR_exit_group, 126) };
    }
}

/// The bytes of a NUL-terminated string.
///
/// # Safety
/// `string` must point to a NUL-terminated string that lives for `'a`.
pub unsafe fn c_bytes<'a>(string: *const u8) -> &'a [u8] {
    let mut length = 0;
    // SAFETY: the caller guarantees a NUL-terminated string; nothing past the NUL is read.
    while unsafe { *string.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: the caller guarantees that the string lives for `'a`; `length` bytes precede its NUL.
    unsafe { core::slice::from_raw_parts(string, length) }
}
