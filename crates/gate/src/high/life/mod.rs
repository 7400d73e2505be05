//! How a process joins the run and leaves it ([`join`], [`left`]), and the state of a thread: its task and
//! its credentials ([`task`], [`credentials`]), and what it gets from its creator ([`heritage`]). A tracer
//! may come meanwhile ([`look`]). Before it loses its way to a layer, it takes in what it lacks ([`way`]).

pub(crate) mod credentials;
pub(crate) mod held;
pub(crate) mod heritage;
pub(crate) mod join;
pub(crate) mod left;
pub(crate) mod look;
pub(crate) mod task;
pub(crate) mod way;
