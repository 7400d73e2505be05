//! X.

pub mod address;
pub mod node;
