//! Proof by counting: what one file call executes.
//!
//! A [`probe`] makes a call between two breakpoints. The [`tracer`] single-steps from one to the other and
//! [`decode`]s each instruction. It counts instructions, those that serialise and those that enter the
//! kernel, and records the cache lines of the region that they read and write. Nothing is timed, so the
//! result is the same on a busy machine and on every run. [`budget`] compares it with what is allowed;
//! [`matrix`] finds pairs of commuting calls that touch a line which one of them writes.

mod budget;
mod command;
mod decode;
mod library;
mod maps;
mod matrix;
mod probe;
mod symbols;
mod tracer;

pub use budget::{Budget, Budgets, Excess};
pub use command::{Command, run};
pub use decode::{Access, Serialising};
pub use matrix::{Conflict, Matrix};
pub use probe::{CALLS, Ground, Probe};
pub use tracer::{Count, Step};
