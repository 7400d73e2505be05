//! The file calls: one file per family, named after its man page. Each handler decodes its arguments and
//! calls `lp-vfs`.
//!
//! Only dispatch tables call it. Locks are taken in `lp-vfs`, after the lock of the list of mappings.
//!
//! Cycle: `open`, `openat2`.

pub mod access;
pub mod across;
pub mod allocate;
pub mod cachestat;
pub mod chdir;
pub mod chmod;
pub mod close;
pub mod credentials;
pub mod dup;
pub mod exec;
pub mod fcntl;
pub mod filter;
pub mod fsync;
pub mod getdents;
pub mod handle;
pub mod inotify;
pub mod ioctl;
pub mod kcmp;
pub mod limit;
pub mod link;
pub mod lseek;
pub mod madvise;
pub mod mkdir;
pub mod mlock;
pub mod mmap;
pub mod mount;
pub mod open;
pub mod openat2;
pub mod poll;
pub mod quick;
pub mod read;
pub mod refused;
pub mod rename;
pub mod sendfile;
pub mod shmop;
pub mod signal_owner;
pub mod sigprocmask;
pub mod socket;
pub mod stat;
pub mod statfs;
pub(crate) mod transfer;
pub mod truncate;
pub mod utimensat;
pub mod wait;
pub mod watch;
pub mod write;
pub mod xattr;
