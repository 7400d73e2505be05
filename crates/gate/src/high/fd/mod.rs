//! Descriptors: whether a number is ours ([`descriptor`]), placeholders and their lock ([`placeholder`]), the
//! gate's own descriptors ([`own_descriptor`]), devices answered here ([`device`]), /proc/self/fd
//! ([`directory`]), host directories that list mounts ([`parent`]), and descriptors in messages ([`rights`]).
//! [`marked_fds`]: the descriptors open on such directories.

pub mod descriptor;
pub mod device;
pub mod directory;
mod marked_fds;
pub mod own_descriptor;
pub mod parent;
pub mod placeholder;
pub mod rights;
