//! The bytes of inodes: chunks, pages, the map, and moving bytes between pages and the program's memory.
//!
//! It knows pages and offsets, but no descriptors, names or rights. Callers must hold the inode's lock where
//! a function says so. It takes no lock itself; pages are allocated by compare-and-swap of a word of
//! [`chunk`].

pub(crate) mod allowance;
pub(crate) mod backing;
pub(crate) mod bare;
pub(crate) mod buffer;
pub mod bulk;
pub mod chunk;
pub(crate) mod cut;
pub(crate) mod fill;
pub(crate) mod hand;
pub mod linking;
pub mod map;
pub mod owner;
pub mod page;
pub(crate) mod pipe;
pub mod run;
pub(crate) mod seek;
pub(crate) mod snapshot;
pub(crate) mod source;
pub mod version;
