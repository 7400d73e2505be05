//! Lends memory of a test to calls. A call returns before the borrow ends, and keeps no pointer.

use std::ffi::CStr;

use lp_abi::{UserPtr, UserSlice};

/// A path or a name.
pub fn path(text: &CStr) -> UserPtr {
    // SAFETY: as the module says; calls only read strings.
    unsafe { UserPtr::new(text.as_ptr().cast()) }
}

/// A path or a name that includes its NUL.
pub fn text(of: &str) -> UserPtr {
    assert!(of.ends_with('\0'));
    bytes(of).start()
}

/// Bytes to write.
pub fn bytes(of: &(impl AsRef<[u8]> + ?Sized)) -> UserSlice {
    let of = of.as_ref();
    // SAFETY: as the module says; the tests pass these to calls that read.
    unsafe { UserSlice::new(of.as_ptr(), of.len()) }
}

/// A buffer for what a call reads.
pub fn room(of: &mut (impl AsMut<[u8]> + ?Sized)) -> UserSlice {
    let of = of.as_mut();
    // SAFETY: as the module says.
    unsafe { UserSlice::new(of.as_mut_ptr(), of.len()) }
}

/// A buffer for a structure.
pub fn value<T>(of: &mut T) -> UserPtr<T> {
    // SAFETY: as the module says.
    unsafe { UserPtr::new(of) }
}
