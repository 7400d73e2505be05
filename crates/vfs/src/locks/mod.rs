//! Locks that programs take on files: flock(2) and fcntl(2)'s record locks.
//!
//! A list of locks is guarded by its inode's lock. Nobody sleeps while holding that lock.
//!
//! `file_lock` asks `deadlock` before it sleeps, and `deadlock` reads the records' families.
//!
//! Cycle: `deadlock`, `file_lock`.

pub(crate) mod deadlock;
pub mod file_lock;
pub mod flock;
pub mod record_lock;
