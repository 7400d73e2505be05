//! The locks of the region: their words name the lane that holds them, so that a dead holder is found.
//!
//! The records contain them; `docs/locking.md` has their order, which [`crate::order`] checks.

pub mod bias;
pub mod lock;
