//! How a process joins the run and leaves it ([`join`], [`left`]), and the state of a thread: its task and
//! its credentials ([`task`], [`credentials`]), and what it gets from its creator ([`heritage`]). A tracer
//! may come meanwhile ([`look`]).

pub(crate) mod credentials;
pub(crate) mod held;
pub(crate) mod heritage;
pub(crate) mod join;
pub(crate) mod left;
pub(crate) mod look;
pub(crate) mod task;
