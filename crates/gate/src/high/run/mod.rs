//! X.

pub mod apart;
pub mod mounts;
pub mod words;
