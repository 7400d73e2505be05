//! Paths, error lines and status files, without an allocator: for everyone.

pub(crate) mod names;
pub mod report;
pub(crate) mod status;
