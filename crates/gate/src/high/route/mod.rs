//! X.

pub mod hostlink;
pub mod libraries;
pub mod magic;
pub mod path;
