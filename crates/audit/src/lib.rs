//! Proof by counting: what one file call executes.
//!
//! A `probe` makes a call between two breakpoints; the `tracer` single-steps it from one to the
//! other and `decode`s each instruction that runs: how many there are, which of them serialise, which
//! enter the kernel, and which cache lines of the region they read and write. Nothing is timed, so the
//! answer is the same on a busy machine, and on every run. `budget` holds it against what is
//! allowed; `matrix` asks which pairs of commuting calls touch a line that one of them writes.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod budget;
mod command;
#[allow(unsafe_code, reason = "forks the process that makes the calls")]
mod commute;
#[allow(unsafe_code, reason = "a record of zeros")]
mod decode;
#[allow(unsafe_code, reason = "forks the probed process")]
mod library;
mod maps;
mod matrix;
mod probe;
mod symbols;
mod tracer;

pub use budget::{Budget, Budgets, Excess};
pub use command::{Command, run};
pub use commute::{Actors, Findings, Pair, Report};
pub use decode::{Access, Serialising};
pub use library::Descriptors;
pub use matrix::{Conflict, Matrix};
pub use probe::{CALLS, Ground, Probe};
pub use tracer::{Count, Step};
