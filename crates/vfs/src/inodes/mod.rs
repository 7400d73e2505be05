//! Inodes: the record, its lock, attributes and times, creating and freeing it, and its blobs.
//!
//! Lock order: only [`crate::calls`] locks several inodes, directories first, then the lower index first.
//! Within an inode's lock come its sections, `data_seq` before `seq`.
//!
//! Blobs and content that files share are inodes, too, which no name leads to (`hidden`). Freeing an inode
//! (`make`) frees its blobs (`blob`) and content that it was the last to share (`reflink`, `borrow`,
//! `membership`).

pub mod blob;
pub(crate) mod borrow;
mod hidden;
pub(crate) mod inode;
pub(crate) mod make;
pub mod membership;
pub(crate) mod ownership;
pub mod reflink;
mod slot;
pub(crate) mod stamps;
pub(crate) mod strict;
pub(crate) mod watched;
pub(crate) mod xattrs;
