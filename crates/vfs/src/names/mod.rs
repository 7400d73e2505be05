//! Paths and names: the walk, directories, their entries, the hash table that finds them, and changes of
//! names.
//!
//! Lookups and walks take no lock. [`change::perform`] expects all inodes of the change to be locked; the
//! hash table is changed by compare-and-swap. A directory is locked by [`dir::enter`], before what its
//! entries name.
//!
//! Cycle inside: a change is carried out in a directory's array, and begins with what the directory is now
//! (`change`, `dir`).
//!
//! Cycle: `change`, `dir`.

pub(crate) mod change;
pub mod dir;
pub mod dirent;
pub mod hash;
pub(crate) mod link_target;
pub(crate) mod mounts;
pub mod name;
pub(crate) mod tree;
pub mod walk;
