//! X.

pub mod names;
pub mod report;
pub mod text;
