//! Paths and names: the walk, directories, their entries, the hash table that finds them, and changes of
//! names.
//!
//! Lookups and walks take no lock. Callers of [`change::perform`] must hold the locks of all inodes of the
//! change; the hash table is changed by compare-and-swap. [`dir::enter`] locks a directory, before what its
//! entries name.
//!
//! A change is carried out in a directory's array, and starts from the directory's current state.

pub(crate) mod change;
pub mod dir;
pub mod dirent;
mod goal;
pub mod hash;
mod known;
pub(crate) mod limits;
pub mod link_target;
pub(crate) mod listing;
pub(crate) mod mounts;
pub mod name;
mod path_text;
pub(crate) mod removal;
pub(crate) mod resolve;
pub mod root;
pub(crate) mod tree;
pub(crate) mod upward;
pub mod walk;
