//! What launchers keep in the cache directory: the gate, and the system's C library and dynamic linker with
//! it.

pub(crate) mod builder;
pub(crate) mod directory;
mod files;
pub(crate) mod filled;
mod identity;
pub(crate) mod preload;
mod processor;
mod trusted_path;
pub(crate) mod within;
