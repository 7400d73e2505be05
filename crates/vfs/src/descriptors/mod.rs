//! What descriptors name: the table of a process, open files, and looking through the tables of all
//! processes.
//!
//! Nothing here frees an open file: that is [`crate::life::open_file`]'s. Lock order: an open file's position
//! ([`file::position`]) before any inode; the table's lock ([`table::lock`]) after all inodes.
//!
//! Cycle inside: `table` takes files out of entries, `file` goes through a table's entries.
//!
//! Cycle: `file`, `table`.

pub mod busy;
pub(crate) mod file;
pub mod flight;
pub(crate) mod named;
pub(crate) mod table;
