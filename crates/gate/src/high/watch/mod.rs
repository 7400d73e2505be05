//! inotify(7) through shadows. [`shadow`] repeats changes on the host, under the lock of the directory or
//! inode that changes. [`shadow_end`] takes inode locks itself; its callers must hold none.
//!
//! Cycle: `lease`, `shadow`, `shadow_make`.

pub mod dnotify;
pub mod lease;
pub mod shadow;
pub mod shadow_end;
pub mod shadow_fd;
pub mod shadow_make;
pub mod shadow_path;
pub mod signalled;
pub mod tree;
