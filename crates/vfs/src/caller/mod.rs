//! Who makes a call: the task, its clock, its scratch buffers and caches, and what it tells watchers.
//!
//! Every folder may use this one, and it uses none. It takes no lock; [`task::Task`] tells the locks of the
//! region who is dead, and [`crate::life::burial`] replays what those had begun.
//!
//! Cycle inside: a task has a prefix cache, whose functions take a task.
//!
//! Cycle: `prefix_cache`, `task`.

pub mod clock;
pub(crate) mod event;
pub(crate) mod mount_prefix;
pub(crate) mod prefix_cache;
pub mod task;
