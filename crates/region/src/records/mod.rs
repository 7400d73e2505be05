//! What lies in the region: the records, field by field, with what guards each and who repairs it.
//!
//! Guards: *immutable* (set before the record is linked in), *lock* (changed under the record's lock), *seq*
//! (like lock, and read through the sequence count), *atomic* (a single word that stands alone), *lane* (only
//! the owning lane writes it). [`lane::Intent`] repairs a record unless stated otherwise.
//!
//! They are reached through [`crate::Region`]. [`order`] says in which order their locks are taken.

mod chunk;
mod dirent;
mod header;
mod inode;
pub mod lane;
pub mod mount;
mod open_file;
#[allow(unsafe_code, reason = "a stack for each lane, which one thread has")]
pub mod order;
#[allow(unsafe_code, reason = "views of bytes that do not change")]
pub mod process;

pub use chunk::*;
pub use dirent::*;
pub use header::*;
pub use inode::*;
pub use open_file::*;
