//! Who is alive: claiming slots and lanes, the record locks that prove it, and the boot in which a region
//! file was last used.
//!
//! `lp_vfs` decides with it whom to bury. Nobody waits for a record lock here.

#[allow(unsafe_code, reason = "system calls")]
pub mod life_file;
#[allow(unsafe_code, reason = "system calls")]
pub mod liveness;
#[allow(unsafe_code, reason = "system calls")]
pub mod machine;
pub mod onlooker;
