//! What each actor of [`crate::inside`] has: its files, and how its calls tell what they found.

use std::ffi::{CStr, CString};

use anyhow::{Result, bail};

/// An actor's files, in a directory of its own.
pub(crate) struct Mine {
    /// The actor's.
    pub index: usize,
    /// `/light/N/f`, open; its bytes are [`Mine::byte`].
    pub fd: i32,
    pub new: CString,
    pub old: CString,
    /// The descriptor for orders.
    pub control: i32,
}

/// Bytes of each file.
pub(crate) const SIZE: usize = 8192;
/// Result of an actor's call that found an error.
pub(crate) const WRONG: i64 = -10_000;

/// The result of a call that has, or has not, done what it should.
pub(crate) fn right(is: bool) -> i64 {
    if is { 0 } else { WRONG }
}

/// errno(3).
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Waits for a child; whether it has ended with status 0.
pub(crate) fn ended_well(pid: i32) -> bool {
    let mut status = 0;
    // A signal may end the wait.
    // SAFETY: waits for a child.
    while pid > 0 && unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
    pid > 0 && status == 0
}

impl Mine {
    pub(crate) fn new(index: usize, control: i32) -> Result<Mine> {
        std::fs::create_dir(format!("/light/{index}"))?;
        let path = |name: &str| CString::new(format!("/light/{index}/{name}")).unwrap_or_default();
        let mut mine = Mine { index, fd: -1, new: path("n"), old: path("r"), control };
        mine.fd = open(&path("f"))?;
        let bytes = [mine.byte(); SIZE];
        // SAFETY: the buffer is as long as said.
        if unsafe { libc::pwrite(mine.fd, bytes.as_ptr().cast(), SIZE, 0) } != SIZE as isize {
            bail!("pwrite: {}", std::io::Error::last_os_error());
        }
        // SAFETY: a descriptor of this program's.
        unsafe { libc::close(open(&mine.old)?) };
        Ok(mine)
    }

    pub(crate) fn byte(&self) -> u8 {
        b'a' + self.index as u8
    }

    /// Whether a descriptor of the file reads what the file contains.
    pub(crate) fn reads(&self, fd: i32) -> bool {
        let mut bytes = [0u8; 100];
        // SAFETY: the buffer is as long as said.
        let got = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), 4050) };
        got == 100 && bytes.iter().all(|byte| *byte == self.byte())
    }
}

/// Opens a file, which is made if it is missing.
pub(crate) fn open(path: &CStr) -> Result<i32> {
    // SAFETY: the path ends in NUL.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) };
    if fd < 0 { bail!("open: {}", std::io::Error::last_os_error()) } else { Ok(fd) }
}
