//! Paths and error lines, without an allocator: for everyone.

pub(crate) mod names;
pub mod report;
