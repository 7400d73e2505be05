//! The life of processes and threads: their first call, fork, vfork, clone, exit; and deferred signals.
//!
//! Called from [`arrive`](crate::low::arrive) and from handlers. Signals are blocked while a child that
//! shares memory is created.

pub mod deferred;
pub mod first_call;
pub mod process;
pub mod signal;
