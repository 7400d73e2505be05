//! Structures that later kernels make longer: what a program gave past the part that is known must be zeros.

use lp_abi::{Errno, Result, UserSlice};

use crate::ucopy;

/// Checks the part of a program's structure past what is known of it (copy_struct_from_user in the kernel's
/// include/linux/uaccess.h).
///
/// # Errors
/// `EFAULT`; `E2BIG` if a byte is not zero.
pub fn all_zero(rest: UserSlice) -> Result<()> {
    for at in 0..rest.len() {
        // SAFETY: a bad pointer is answered.
        if unsafe { ucopy::get(rest.skip(at).start().as_ptr()) }? != 0u8 {
            return Err(Errno::E2BIG);
        }
    }
    Ok(())
}
