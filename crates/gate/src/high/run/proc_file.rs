//! Files of /proc that the gate writes itself: a memfd in place of what the program has just opened.

use core::ffi::CStr;

use lp_abi::linux::{
    __NR_close, __NR_dup3, __NR_fcntl, __NR_lseek, __NR_memfd_create, __NR_read, __NR_write, F_GETFD,
    FD_CLOEXEC, MFD_CLOEXEC, O_CLOEXEC,
};
use lp_abi::{Errno, Fd, Result};

/// Replaces `fd` by a memfd that `fill` writes. On failure `fd` stays, at its beginning.
///
/// # Errors
/// Those of the kernel's calls and of `fill`.
pub(crate) fn replace(fd: Fd, name: &CStr, fill: impl FnOnce(Fd) -> Result<()>) -> Result<()> {
    // SAFETY: the calls take numbers and a NUL-terminated name; the memfd is closed again.
    unsafe {
        let flags = lp_abi::syscall!(__NR_fcntl, fd, F_GETFD)?;
        let made = lp_abi::syscall!(__NR_memfd_create, name.as_ptr(), MFD_CLOEXEC)?;
        let made = Fd::new(made as i32);
        let cloexec = if flags as u32 & FD_CLOEXEC != 0 { O_CLOEXEC } else { 0 };
        let filled = fill(made)
            .and_then(|()| lp_abi::syscall!(__NR_lseek, made, 0, 0))
            .and_then(|_| lp_abi::syscall!(__NR_dup3, made, fd, cloexec));
        let _ = lp_abi::syscall!(__NR_lseek, fd, 0, 0);
        let _ = lp_abi::syscall!(__NR_close, made);
        filled.map(|_| ())
    }
}

/// Writes all of `bytes`.
///
/// # Errors
/// Those of write(2).
pub(crate) fn write(to: Fd, bytes: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads within `bytes`. A memfd takes everything or fails.
    let done = unsafe { lp_abi::syscall!(__NR_write, to, bytes.as_ptr(), bytes.len()) }?;
    if done as usize == bytes.len() { Ok(()) } else { Err(Errno::ENOSPC) }
}

/// Calls `each` with the pieces of a file, up to its end.
///
/// # Errors
/// Those of read(2) and of `each`.
pub(crate) fn each_piece(file: Fd, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = [0u8; 2048];
    loop {
        // SAFETY: the kernel writes within the buffer.
        let got = unsafe { lp_abi::syscall!(__NR_read, file, buffer.as_mut_ptr(), buffer.len()) }?;
        match buffer.get(..got as usize) {
            Some(bytes) if !bytes.is_empty() => each(bytes)?,
            _ => return Ok(()),
        }
    }
}
