//! X.

pub mod areas;
