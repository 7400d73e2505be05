//! inotify(7) through shadows. [`shadow`] repeats changes on the host, under the lock of the directory or
//! inode that changes. [`shadow_end`] takes inode locks itself; its callers must hold none.

pub(crate) mod dnotify;
pub(crate) mod lease;
pub(crate) mod lease_break;
pub(crate) mod shadow;
pub(crate) mod shadow_end;
pub(crate) mod shadow_fd;
pub(crate) mod shadow_make;
pub(crate) mod shadow_path;
pub(crate) mod signalled;
pub(crate) mod tree;
