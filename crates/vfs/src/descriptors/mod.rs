//! Descriptors: a process's table, open files, and searching the tables of all processes.
//!
//! Nothing here frees an open file; [`crate::life::open_file`] does. Lock order: an open file's position
//! ([`position::hold`]) before any inode; the table's lock ([`table_lock`]) after all
//! inodes.
//!
//! `table` takes files out of entries, `fget` finds them there.

pub mod busy;
pub(crate) mod fget;
pub(crate) mod file;
pub mod flight;
pub(crate) mod named;
pub mod opened;
pub(crate) mod position;
pub(crate) mod table;
pub(crate) mod table_lock;
