//! [`Memory`]: buffers too large for a stack.

use lp_abi::Result;
use lp_abi::linux::{
    __NR_mmap, __NR_munmap, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};

/// Temporary memory from the kernel.
pub(crate) struct Memory(*mut u8);

impl Memory {
    const HALF: usize = 1 << 16;

    pub(crate) fn new() -> Result<Memory> {
        let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
        // SAFETY: a new mapping where nothing is mapped.
        let at =
            unsafe { lp_abi::syscall!(__NR_mmap, 0, 2 * Memory::HALF, protection, flags, usize::MAX, 0) }?;
        Ok(Memory(at as *mut u8))
    }

    pub(crate) fn halves(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: both halves belong to this value, do not overlap, and are borrowed once.
        unsafe {
            (
                core::slice::from_raw_parts_mut(self.0, Memory::HALF),
                core::slice::from_raw_parts_mut(self.0.add(Memory::HALF), Memory::HALF),
            )
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and nothing else uses it.
        let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.0, 2 * Memory::HALF) };
    }
}
