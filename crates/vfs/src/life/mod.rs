//! The beginnings and ends of open files, inodes without links and processes, and the cleanup after dead
//! ones.
//!
//! Callers of [`reclaim`], [`sweep`] and [`reap`] must hold no inode lock. The reaper takes an inode's lock
//! or a burial only if no live thread holds it. Lock order: `Lane::burial`, then the dead lane's own locks.
//!
//! A sweep that finds a dead holder has it reaped, the reaper asks for a sweep and frees mappings, and a
//! mapping without memory asks for a reclaim.
//!
//! Cycle: `mapping`, `reap`, `reclaim`, `sweep`.

pub mod boot;
pub(crate) mod burial;
pub(crate) mod candidates;
pub mod executed;
pub mod fork;
pub mod mapping;
pub(crate) mod mount_end;
pub(crate) mod mount_graft;
pub(crate) mod mount_list;
pub(crate) mod mount_peers;
pub(crate) mod mount_prune;
pub mod mount_tree;
pub(crate) mod open_file;
pub mod reap;
pub mod reclaim;
pub(crate) mod superblock;
pub(crate) mod sweep;
