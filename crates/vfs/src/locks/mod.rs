//! Locks that programs take on files: flock(2) and fcntl(2)'s record locks.
//!
//! The locks on an inode are guarded by its `locks_lock`. Nobody sleeps with that lock held.
//!
//! Cycle inside: `file_lock` asks `deadlock` before it sleeps, which reads the records' families; `lock_tree`
//! holds what `file_lock` reads out of the records.
//!
//! Cycle: `deadlock`, `file_lock`, `lock_tree`.

pub(crate) mod deadlock;
pub mod file_lock;
pub mod flock;
pub mod lock_tree;
pub mod record_lock;
pub mod signal_target;
