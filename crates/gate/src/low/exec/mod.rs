//! X.

pub mod check;
pub mod environment;
pub mod known;
pub mod run;
