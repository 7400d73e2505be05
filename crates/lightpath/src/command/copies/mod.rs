//! Copies of regions: whole, without the content of files, and as a run's own.

pub(crate) mod branch;
pub(crate) mod extents;
pub(crate) mod origin;
mod skeleton;
