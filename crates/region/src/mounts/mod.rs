//! How the tree of mounts changes: without a lock, each change one event that anybody can finish.
//!
//! The algorithms know mounts by their words only ([`mount_change::Mounts`]); `crates/models` has their
//! models.

pub mod mount_change;
pub mod mount_leave;
pub mod mount_state;
