//! X.

pub mod apart;
pub mod calls;
pub mod count;
pub mod limited;
