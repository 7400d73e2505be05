//! Memory for what a call passes on changed.

use lp_abi::Result;
use lp_abi::linux::{__NR_mmap, __NR_munmap, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};

use crate::high::frame::at::spare_buffer;

/// The thread's third buffer, or a mapping if that is too small.
pub(crate) struct Room {
    at: *mut u8,
    /// Bytes mapped for it; 0 if it is the thread's buffer.
    mapped: usize,
}

impl Room {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(bytes: usize) -> Result<Room> {
        let buffer = spare_buffer();
        if bytes <= buffer.len() {
            return Ok(Room { at: buffer.as_mut_ptr(), mapped: 0 });
        }
        let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let at = unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, -1i32, 0) }?;
        Ok(Room { at: at as *mut u8, mapped: bytes })
    }

    /// Its address, aligned for words.
    pub(crate) fn start(&self) -> *mut u8 {
        self.at
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.mapped != 0 {
            // SAFETY: the mapping was made for this value alone.
            let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.at, self.mapped) };
        }
    }
}
