//! The file system: what Linux's VFS and tmpfs mean, on the records of `lp-region`.
//!
//! Every call takes the [`Task`](task::Task) that makes it and answers as the system call of the same name does.
//!
//! Lock order, outermost first: an open file's position; a directory, then what it holds; other inodes, the
//! lower index first; the process's table; hash buckets, the lower index first. A rename, which locks more
//! than that, waits for none of them with another held. `docs/locking.md` has them all, and what happens when
//! a holder dies.
#![no_std]
#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "programs' pointers are touched by the copy routines only, whose faults are EFAULT"
)]

pub mod access;
pub mod acl;
pub mod below;
pub mod blob;
pub mod boot;
pub mod buffer;
pub mod bulk;
pub mod busy;
mod candidates;
pub mod change;
pub mod chdir;
pub mod chmod;
pub mod chown;
pub mod chunk;
pub mod clock;
pub mod close;
pub mod copy;
pub mod create;
mod deadlock;
pub mod dir;
pub mod dirent;
pub mod dup;
pub mod fallocate;
pub mod fcntl;
pub mod file;
pub mod fill;
pub mod flight;
pub mod flock;
pub mod fork;
pub mod fsync;
pub mod getcwd;
pub mod getdents;
pub mod hash;
pub mod inode;
pub mod intent;
pub mod ioctl;
pub mod limit;
pub mod link;
pub mod lock;
pub mod lseek;
pub mod map;
pub mod mapping;
pub mod mkdir;
pub mod mknod;
pub mod mounts;
pub mod name;
mod named;
pub mod open;
pub mod owner;
pub mod page;
pub mod permission;
pub mod pin;
pub mod pipe;
pub mod prefix_cache;
pub mod read;
pub mod readlink;
pub mod reap;
pub mod reclaim;
pub mod record_lock;
pub mod rename;
pub mod seek;
pub mod source;
pub mod stat;
pub mod statfs;
mod sweep;
pub mod symlink;
pub mod table;
pub mod target;
pub mod task;
pub mod tree;
pub mod truncate;
pub mod unlink;
pub mod utimens;
pub mod walk;
pub mod watch;
pub mod watch_names;
pub mod write;
pub mod writer;
pub mod xattr;

pub use task::{Outside, Place, Task, Time};
