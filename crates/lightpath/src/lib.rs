//! Lightpath's file system for Rust programs: the same one that `lightpath run` gives to other programs, in
//! this process's own memory and called directly.
//!
//! ```
//! use lightpath::{Fs, linux::{O_CREAT, O_RDWR, SEEK_SET}};
//!
//! let fs = Fs::new(64 << 20)?;
//! let task = fs.task()?;
//! let file = task.open("/notes", O_CREAT | O_RDWR, 0o644)?;
//! task.write(file, b"hello")?;
//! task.lseek(file, 0, SEEK_SET)?;
//! let mut text = [0; 16];
//! let length = task.read(file, &mut text)?;
//! assert_eq!(&text[..length], b"hello");
//! # Ok::<(), lightpath::Errno>(())
//! ```
//!
//! A [`Task`] is like a Linux task, as far as files are concerned: credentials, working directory, umask and
//! a descriptor table. Each method is the system call of the same name: it behaves as on `tmpfs`, error for
//! error, and its manual page describes it. Any number of tasks, on any threads, can use one [`Fs`] at once.
//!
//! Constants are the kernel's own, in [`linux`].
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

#[allow(unsafe_code, reason = "records that the file system fills in")]
mod attributes;
mod content;
mod descriptors;
mod extended;
#[allow(unsafe_code, reason = "the region ends with its last user")]
mod fs;
mod names;
#[allow(unsafe_code, reason = "calls take memory by address")]
mod task;

pub use attributes::{Stat, Statfs};
pub use fs::Fs;
pub use lp_abi::{Errno, Fd, Result, linux};
pub use names::DirEntry;
pub use task::Task;
