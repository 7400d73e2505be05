//! X.

pub mod entry;
pub mod entry_quick;
