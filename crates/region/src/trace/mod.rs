//! The calls of a traced run, on their way from its threads to the tracer.
//!
//! The gate writes to it and `lightpath trace` reads. It takes no lock.

pub mod entry;
mod rings;
mod sole;

pub use entry::{DATA, EntryWriter};
pub use rings::*;
pub use sole::Sole;
