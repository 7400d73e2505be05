//! Descriptors that every process of a run inherits: the region's, the life file's, and those of the run's
//! flights and shelf.

pub(crate) mod flights;
pub(crate) mod life;
pub(crate) mod numbers;
mod shelf;
