//! Patching: which objects need it ([`cover`]), the images to patch them with ([`patch`], [`build`]), and objects that
//! are mapped later ([`mapping`]).
//!
//! Called at the start of the program and when it maps code. Takes no lock; nothing runs in an object while it is
//! patched.

pub mod build;
pub mod cover;
pub mod mapping;
pub mod patch;
