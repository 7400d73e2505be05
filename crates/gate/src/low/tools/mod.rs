//! Paths, error lines, status files, closing and comparing descriptors, ranges of addresses, without an
//! allocator: for everyone.

pub(crate) mod close;
pub(crate) mod identity;
pub(crate) mod memfd;
pub(crate) mod names;
pub(crate) mod range;
pub mod report;
pub(crate) mod status;
