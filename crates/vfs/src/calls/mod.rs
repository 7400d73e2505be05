//! The calls, one file for each man page. `create`, `mount_at`, `open_how` and `target` hold what several
//! calls share; `rename_over`, `rename_within` and `unlink_plain` are fast paths.
//!
//! Doors call these. Lock order: an open file's position; directories, then what their entries name; other
//! inodes, the lower index first; the table. [`rename`] waits for a lock only while it holds none. No call
//! waits for a pipe, a socket or a device while holding a lock, and none sleeps in [`crate::locks`] with an
//! inode locked.

pub mod access;
pub mod cachestat;
pub mod chdir;
pub mod chmod;
pub mod chown;
pub mod close;
pub mod copy;
pub(crate) mod create;
pub mod dup;
pub mod ends;
pub mod exec;
pub mod fallocate;
pub mod fcntl;
pub mod file_attr;
pub mod fsmount;
pub mod fspick;
pub mod fsync;
pub mod getcwd;
pub mod getdents;
pub mod handle;
pub mod ioctl;
pub(crate) mod keep;
pub mod landlock;
pub mod link;
pub mod lseek;
pub mod mkdir;
pub mod mknod;
pub mod mount;
pub(crate) mod mount_at;
pub mod mount_setattr;
pub mod mount_show;
pub mod move_mount;
pub mod open;
pub(crate) mod open_found;
pub(crate) mod open_how;
pub mod open_tree;
mod plain_file;
pub(crate) mod read;
pub mod readlink;
pub(crate) mod remount;
pub mod rename;
mod rename_change;
mod rename_over;
mod rename_within;
pub mod stat;
pub mod statfs;
pub mod symlink;
pub mod target;
pub mod truncate;
pub mod umount;
pub mod unlink;
mod unlink_plain;
pub mod utimens;
pub mod write;
pub(crate) mod xattr;
