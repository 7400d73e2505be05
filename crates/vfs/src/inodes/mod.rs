//! Inodes: the record, its lock, attributes and times, making and freeing it, and its blobs.
//!
//! Lock order: several inodes are locked by [`crate::calls`] only, directories first, then the lower index
//! first. Inside an inode's lock come its sections, `data_seq` before `seq`.
//!
//! Cycles inside: `inode`, `limit` and `watched` decide together whether a lock may be biased; freeing an
//! inode frees its blobs, which are inodes (`make`, `blob`).
//!
//! Cycle: `blob`, `make`.
//! Cycle: `inode`, `limit`, `watched`.

pub mod blob;
pub(crate) mod inode;
pub mod limit;
pub(crate) mod make;
pub(crate) mod ownership;
pub(crate) mod stamps;
pub(crate) mod watched;
pub(crate) mod xattrs;
