//! X.

pub mod deferred;
pub mod process;
pub mod signal;
