//! [`Room`]: a thread's memory for what it assembles before an exec.

use core::cell::Cell;

use lp_abi::Result;
use lp_abi::linux::{__NR_mmap, __NR_munmap, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};

/// Memory for a new environment that does not fit the thread's scratch buffers. Mapped when needed, kept for
/// the next exec if this one fails, unmapped with the record.
#[repr(C)]
pub(crate) struct Room {
    start: Cell<usize>,
    bytes: Cell<usize>,
}

impl Room {
    /// Returns at least `bytes` bytes. The next call may move them.
    pub(crate) fn at_least(&self, bytes: usize) -> Result<*mut u8> {
        if self.bytes.get() < bytes {
            self.release();
            let bytes = bytes.next_multiple_of(4096);
            let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
            // SAFETY: a new mapping.
            self.start
                .set(unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, usize::MAX, 0) }?);
            self.bytes.set(bytes);
        }
        Ok(self.start.get() as *mut u8)
    }

    /// Whether an address is in it.
    pub(crate) fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.start.get()) < self.bytes.get()
    }

    pub(crate) fn release(&self) {
        if self.bytes.get() != 0 {
            // SAFETY: the mapping belongs to this record and is not in use.
            let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.start.get(), self.bytes.get()) };
            self.bytes.set(0);
        }
    }
}
