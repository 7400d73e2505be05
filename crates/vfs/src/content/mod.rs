//! The bytes of inodes: chunks, pages, the map, and moving bytes between pages and the program's memory.
//!
//! It knows pages and offsets, no descriptors, names or rights: callers hold the inode's lock where a
//! function says so. It takes no lock itself; pages are exchanged by compare-and-swap of a word of [`chunk`].
//!
//! Cycle inside: `chunk`, `owner` and `page` share the type of a run of pages; `page` asks `map` at a repair
//! whether a page is linked in.
//!
//! Cycle: `chunk`, `map`, `owner`, `page`.

pub(crate) mod buffer;
pub mod bulk;
pub mod chunk;
pub(crate) mod cut;
pub(crate) mod fill;
pub mod map;
pub mod owner;
pub mod page;
pub(crate) mod pipe;
pub(crate) mod seek;
pub(crate) mod snapshot;
pub(crate) mod source;
