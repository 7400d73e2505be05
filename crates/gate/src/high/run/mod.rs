//! The run of this process: its mounts, the region once it is mapped, and the state while the process is
//! apart. Written at attach and when the process joins, while it has one thread.

pub(crate) mod apart;
pub(crate) mod image;
pub(crate) mod lock_table;
pub(crate) mod mount_ids;
pub(crate) mod mount_table;
pub(crate) mod mounts;
pub(crate) mod outline;
pub(crate) mod own;
pub(crate) mod proc_file;
pub(crate) mod region;
pub(crate) mod shelf;
pub(crate) mod words;
