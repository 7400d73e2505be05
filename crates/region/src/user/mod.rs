//! The program's own memory: the only code that touches it, and what it needs to know.
//!
//! A bad address ends a copy with a fault that the gate fixes up from a table of addresses.

#[allow(unsafe_code, reason = "reads a register by assembly")]
pub mod cpu;
#[allow(unsafe_code, reason = "reads the program's memory")]
pub mod extensible;
pub mod statx;
#[allow(unsafe_code, reason = "touches the program's memory")]
#[cfg_attr(miri, path = "ucopy_miri.rs")]
pub mod ucopy;
