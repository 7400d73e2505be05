//! Mappings of files of ours in this process. The list has its own lock, which is taken before every lock of
//! the region.
//!
//! Cycle: `areas`, `holes`.

pub(crate) mod areas;
pub(crate) mod holes;
mod sorted;
