//! Device and inode number of what the kernel finds.

use core::mem::MaybeUninit;

use lp_abi::linux::{__NR_fstat, stat};
use lp_abi::{Fd, Result};

/// Those of a descriptor's file; `None` if it cannot be asked for.
pub(crate) fn of(fd: Fd) -> Option<(u64, u64)> {
    // SAFETY: the kernel writes within `found`.
    by(|found| unsafe { lp_abi::syscall!(__NR_fstat, fd, found) })
}

/// Those of what a call finds.
pub(crate) fn by(call: impl FnOnce(*mut stat) -> Result<usize>) -> Option<(u64, u64)> {
    // SAFETY: zeros are a valid `stat`.
    let mut found: stat = unsafe { MaybeUninit::zeroed().assume_init() };
    call(&raw mut found).ok()?;
    Some((found.st_dev, found.st_ino))
}
