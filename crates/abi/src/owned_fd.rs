//! Descriptors that close themselves.

use core::mem::ManuallyDrop;

use crate::fd::Fd;
use crate::linux::__NR_close;

/// A kernel descriptor that is closed when this value is dropped.
#[derive(Debug)]
pub struct OwnedFd(Fd);

impl OwnedFd {
    /// Takes charge of the descriptor that a system call has just returned.
    pub const fn new(returned: usize) -> OwnedFd {
        OwnedFd(Fd::new(returned as i32))
    }

    /// Its number.
    pub const fn get(&self) -> Fd {
        self.0
    }

    /// Gives the open descriptor to the caller.
    pub fn keep(self) -> Fd {
        ManuallyDrop::new(self).0
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to this value.
        let _ = unsafe { crate::syscall!(__NR_close, self.0) };
    }
}
