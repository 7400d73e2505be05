//! The caller of a call: the task, its descriptor table, its clock, its scratch buffers and caches, and the
//! events that it reports to watchers, and its credentials as a record.
//!
//! Every folder may use this one, and it uses none. It takes no lock. [`task::Task`] tells the region's locks
//! who is dead, and [`crate::life::burial`] replays what the dead had begun.
//!
//! A task has a prefix cache (`prefix_cache`). Functions that take a task look paths up there (`prefixes`),
//! keep the mounts that these lead through (`walked`), and request what is still to be taken from the layer
//! below (`below`).

pub(crate) mod below;
pub(crate) mod candidates;
pub mod clock;
pub mod directories;
pub(crate) mod event;
pub(crate) mod fd_table;
pub mod id_map;
pub mod identity;
pub(crate) mod lacking;
pub(crate) mod limited;
pub(crate) mod mount_prefix;
pub(crate) mod namespaces;
pub(crate) mod prefix_cache;
pub(crate) mod prefixes;
pub mod task;
pub(crate) mod walked;
