//! The region as one process has it mapped: access to records by handle, allocating and freeing their slots,
//! and the space behind them.
//!
//! All rooms above work on a [`region::Region`]. It takes no lock.
//!
//! Cycle: `region`, `slab`.

#[allow(unsafe_code, reason = "system calls")]
pub mod backing;
pub mod depot;
#[allow(unsafe_code, reason = "maps the region and leads to its records")]
pub mod region;
#[allow(unsafe_code, reason = "links free slots through their own bytes")]
pub mod slab;
pub mod standing;
