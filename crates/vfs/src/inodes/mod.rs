//! Inodes: the record, its lock, attributes and times, creating and freeing it, and its blobs.
//!
//! Lock order: only [`crate::calls`] locks several inodes, directories first, then the lower index first.
//! Within an inode's lock come its sections, `data_seq` before `seq`.
//!
//! `inode` and `watched` decide together whether a lock may be biased. Freeing an inode frees its
//! blobs and content that it was the last to share, which are inodes (`make`, `blob`, `reflink`,
//! `membership`, `borrow`).
//!
//! Cycle: `blob`, `borrow`, `make`, `membership`, `reflink`.
//! Cycle: `inode`, `watched`.

pub mod blob;
pub(crate) mod borrow;
pub(crate) mod inode;
pub(crate) mod make;
pub mod membership;
pub(crate) mod ownership;
pub mod reflink;
pub(crate) mod stamps;
pub(crate) mod strict;
pub(crate) mod watched;
pub(crate) mod xattrs;
