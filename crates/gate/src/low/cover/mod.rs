//! X.

pub mod mapping;
pub mod patch;
