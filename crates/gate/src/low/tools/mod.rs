//! Paths, error lines, status files, closing descriptors, without an allocator: for everyone.

pub(crate) mod close;
pub(crate) mod names;
pub mod report;
pub(crate) mod status;
