//! The file calls: one file per family, named after its man page. Each handler decodes its arguments and
//! calls `lp-vfs`.
//!
//! Only dispatch tables call it. Locks are taken in `lp-vfs`, after the lock of the list of mappings.
//!
//! Cycle: `open`, `openat2`.
//! Cycle: `exec`, `exec_interpreter`.

pub(crate) mod access;
pub(crate) mod across;
pub(crate) mod across_rename;
pub(crate) mod aio;
pub(crate) mod allocate;
pub(crate) mod cachestat;
pub(crate) mod chdir;
pub(crate) mod chmod;
pub(crate) mod close;
pub(crate) mod credentials;
pub(crate) mod dup;
pub(crate) mod exec;
pub(crate) mod exec_arguments;
pub(crate) mod exec_held;
pub(crate) mod exec_interpreter;
pub(crate) mod fcntl;
pub(crate) mod file_attr;
pub(crate) mod filter;
pub(crate) mod fsopen;
pub(crate) mod fsync;
pub(crate) mod getdents;
pub(crate) mod handle;
pub(crate) mod inotify;
pub(crate) mod ioctl;
pub(crate) mod kcmp;
pub(crate) mod landlock;
pub(crate) mod limit;
pub(crate) mod link;
pub(crate) mod linker;
pub(crate) mod listmount;
pub(crate) mod loop_device;
pub(crate) mod lseek;
pub(crate) mod madvise;
pub(crate) mod mkdir;
pub(crate) mod mlock;
pub(crate) mod mmap;
pub(crate) mod mount;
pub(crate) mod mprotect;
pub(crate) mod mremap;
pub(crate) mod open;
pub(crate) mod open_tree;
pub(crate) mod openat2;
pub(crate) mod other_kind;
pub(crate) mod poll;
pub(crate) mod quick;
pub(crate) mod read;
pub(crate) mod refused;
pub(crate) mod remap_file_pages;
pub(crate) mod rename;
pub(crate) mod rlimit;
pub(crate) mod sendfile;
pub(crate) mod shmop;
pub(crate) mod signal_owner;
pub(crate) mod sigprocmask;
pub(crate) mod socket;
pub(crate) mod stat;
pub(crate) mod statfs;
pub(crate) mod statmount;
pub(crate) mod transfer;
pub(crate) mod truncate;
pub(crate) mod utimensat;
pub(crate) mod wait;
pub(crate) mod watch;
pub(crate) mod write;
pub(crate) mod xattr;
