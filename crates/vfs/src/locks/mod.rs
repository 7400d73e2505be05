//! Locks that programs take on files: flock(2) and fcntl(2)'s record locks.
//!
//! The locks on an inode are guarded by its `locks_lock`. Nobody sleeps with that lock held.
//!
//! [`lock`] says what a lock is, [`lock_tree`] keeps those of an inode, [`file_lock`] acquires and releases
//! them, [`flock`] and [`record_lock`] are the calls.

pub(crate) mod deadlock;
pub mod file_lock;
pub mod flock;
pub mod lock;
pub mod lock_tree;
pub mod record_lock;
pub mod signal_target;
