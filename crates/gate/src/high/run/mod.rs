//! The run of this process: its mounts, the region once it is mapped, and the state while the process is
//! apart. Written at attach and when the process joins, while it has one thread.

pub mod apart;
pub mod image;
pub mod mount_table;
pub mod mounts;
pub(crate) mod own;
pub mod region;
pub mod shelf;
pub mod words;
