//! The caller of a call: the task, its descriptor table, its clock, its scratch buffers and caches, and the
//! events that it reports to watchers, and its credentials as a record.
//!
//! Every folder may use this one, and it uses none. It takes no lock. [`task::Task`] tells the region's locks
//! who is dead, and [`crate::life::burial`] replays what the dead had begun.
//!
//! A task has a prefix cache, which keeps the mounts that it leads through, and requests what is still to be
//! taken from the layer below, by functions that take a task.
//!
//! Cycle: `below`, `prefix_cache`, `task`, `walked`.

pub(crate) mod below;
pub(crate) mod candidates;
pub mod clock;
pub mod directories;
pub(crate) mod event;
pub(crate) mod fd_table;
pub mod id_map;
pub mod identity;
pub(crate) mod limited;
pub(crate) mod mount_prefix;
pub(crate) mod namespaces;
pub(crate) mod prefix_cache;
pub mod task;
pub(crate) mod walked;
