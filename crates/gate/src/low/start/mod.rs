//! X.

pub mod attach;
pub mod auditor;
pub mod process_calls;
pub mod standalone;
