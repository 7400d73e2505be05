//! The beginnings and ends of open files, inodes without links and processes, and the cleanup after dead
//! ones.
//!
//! Callers of [`reclaim`], [`sweep`] and [`reap`] must hold no inode lock. The reaper takes an inode's lock
//! or a burial only if no live thread holds it. Lock order: `Lane::burial`, then the dead lane's own locks.
//!
//! [`reclaim`] decides when to look for what nothing names, [`sweep`] looks, and has the reaper bury a dead
//! holder; [`free`] frees what either finds, and [`tidy`] takes it out of the lanes' lists. [`grace`] frees
//! files that threads have closed and that no other table or entry can name.

pub mod bare_mapping;
pub mod boot;
pub(crate) mod burial;
pub mod executed;
pub mod fork;
pub(crate) mod free;
pub(crate) mod fs_options;
pub mod grace;
pub(crate) mod home;
pub mod limit;
pub mod load;
pub(crate) mod mapped;
pub mod mapping;
pub(crate) mod mempolicy;
pub(crate) mod mount_end;
pub(crate) mod mount_graft;
pub(crate) mod mount_list;
pub(crate) mod mount_owner;
pub(crate) mod mount_peers;
pub(crate) mod mount_prune;
pub mod mount_tree;
pub mod namespace;
pub(crate) mod open_file;
pub mod parted;
pub mod reap;
pub mod reclaim;
pub mod sharing;
pub(crate) mod superblock;
pub(crate) mod sweep;
pub(crate) mod tidy;
