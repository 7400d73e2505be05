//! Paths and error lines, without an allocator: for everyone.

pub mod names;
pub mod report;
