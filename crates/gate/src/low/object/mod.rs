//! X.

pub mod elf;
pub mod objects;
