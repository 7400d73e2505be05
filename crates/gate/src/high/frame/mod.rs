//! X.

pub mod handler;
