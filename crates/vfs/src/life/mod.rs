//! Beginnings and ends: of open files, of inodes without links, of processes, and of what the dead left
//! behind.
//!
//! [`reclaim`], [`sweep`] and [`reap`] are called with no inode locked. The reaper takes an inode's lock or a
//! burial only if nobody who lives holds it. Lock order: `Lane::burial`, then the dead lane's own locks.
//!
//! Cycle inside: a sweep that finds a dead holder has it reaped, the reaper asks for a sweep and gives
//! mappings back, and a mapping without memory asks for a reclaim (`reclaim`, `sweep`, `reap`, `mapping`).
//!
//! Cycle: `mapping`, `reap`, `reclaim`, `sweep`.

pub mod boot;
pub(crate) mod burial;
pub(crate) mod candidates;
pub mod fork;
pub mod mapping;
pub(crate) mod mount_end;
pub mod mount_tree;
pub(crate) mod open_file;
pub mod reap;
pub mod reclaim;
pub(crate) mod superblock;
pub(crate) mod sweep;
