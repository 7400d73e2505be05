//! The run that this process is part of: its mounts, the region once it is mapped, and what is known while
//! the process is apart. Written at attach and when the process joins, while it has one thread.

pub mod apart;
pub mod mount_table;
pub mod mounts;
pub mod region;
pub mod words;
