//! Kill injection: a process is killed between two instructions of a call, and the others go on.
//!
//! For each call ([`case`]) a fresh region is made, a victim forked and single-stepped ([`victim`]) to instruction k of
//! the call, and killed there with SIGKILL. The survivor then makes calls on the same names, which must not hang, and
//! looks at the tree ([`tree`]): it is that of before the call or that of after it, nothing between. At last it removes
//! everything, and every page, inode and slot must be free again ([`usage`]): a death leaks nothing.
//!
//! Source of the method: the power-loss tests of littlefs, which run again with power cut at every step.

pub mod case;
pub mod sandbox;
pub mod tree;
pub mod usage;
pub mod victim;
