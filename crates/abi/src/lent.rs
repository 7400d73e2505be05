//! Lends memory of this program to calls of the library's functions, for tools, tests and the library's
//! users.
//!
//! What these functions return names the memory without borrowing it. The caller must pass it to one call,
//! which returns before the borrow ends: no call keeps a pointer.

use core::ffi::CStr;

use crate::user::{UserPtr, UserSlice};

/// A path or a name.
#[inline]
pub fn path(text: &CStr) -> UserPtr {
    // SAFETY: calls only read strings, and keep no pointer.
    unsafe { UserPtr::new(text.as_ptr().cast()) }
}

/// Bytes for a call that only reads them.
#[inline]
pub fn bytes(of: &(impl AsRef<[u8]> + ?Sized)) -> UserSlice {
    let of = of.as_ref();
    // SAFETY: the call only reads them, and keeps no pointer.
    unsafe { UserSlice::new(of.as_ptr(), of.len()) }
}

/// Room for a call to fill.
#[inline]
pub fn room(of: &mut (impl AsMut<[u8]> + ?Sized)) -> UserSlice {
    let of = of.as_mut();
    // SAFETY: nobody else has the room meanwhile, and the call keeps no pointer.
    unsafe { UserSlice::new(of.as_mut_ptr(), of.len()) }
}

/// Room for one value that a call reads or fills.
#[inline]
pub fn value<T>(of: &mut T) -> UserPtr<T> {
    // SAFETY: nobody else has the room meanwhile, and the call keeps no pointer.
    unsafe { UserPtr::new(of) }
}
