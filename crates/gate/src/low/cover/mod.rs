//! Patching: which objects need it ([`loaded`]), the images to patch them with ([`patch`], [`build`]), and
//! objects that are mapped later ([`mapped_code`]).
//!
//! Called at the start of the program and when it maps code. Takes no lock. Nothing may execute an object
//! while it is being patched.

pub(crate) mod build;
pub(crate) mod loaded;
pub(crate) mod mapped_code;
pub(crate) mod patch;
