//! inotify(7) by way of shadows: changes are carried over ([`shadow`]) under the lock of the directory or
//! inode that changes; [`shadow_end`] takes inodes' locks itself and is called without one.

pub mod shadow;
pub mod shadow_end;
pub mod shadow_fd;
pub mod shadow_path;
pub mod tree;
