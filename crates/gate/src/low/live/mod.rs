//! The life of processes and threads: their first call, fork, vfork, clone, exit; and deferred signals.
//!
//! Called from [`arrive`](crate::low::arrive) and from handlers. Signals are blocked while a child that
//! shares memory is created.

pub(crate) mod deferred;
pub(crate) mod first_call;
pub(crate) mod process;
pub(crate) mod signal;
pub(crate) mod trap;
pub(crate) mod wait;
