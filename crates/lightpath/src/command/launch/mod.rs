//! Starting a command in a run, and what waits for its end.

mod exec;
pub(crate) mod start;
pub(crate) mod supervise;
