//! How a process joins the run and leaves it ([`join`], [`left`]), and the state of a thread: its task and
//! its credentials ([`task`], [`credentials`]).

pub mod credentials;
pub mod join;
pub mod left;
pub mod task;
