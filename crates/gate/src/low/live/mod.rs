//! The life of processes and threads: their first call, fork, vfork, clone, exit; and signals that wait for
//! the end of a call.
//!
//! Called from [`arrive`](crate::low::arrive) and from handlers. Signals are blocked while a child is made
//! that shares memory.

pub mod deferred;
pub mod first_call;
pub mod process;
pub mod signal;
pub mod wait;
