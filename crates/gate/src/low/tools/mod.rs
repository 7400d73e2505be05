//! Paths, error lines, status files, closing and comparing descriptors, without an allocator: for everyone.

pub(crate) mod close;
pub(crate) mod identity;
pub(crate) mod memfd;
pub(crate) mod names;
pub mod report;
pub(crate) mod status;
