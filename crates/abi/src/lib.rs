//! Linux's numbers, structures and errors under the names that the rest of Lightpath uses.
//!
//! Nothing here has state or policy. Constants and structures are those of the kernel's user API, taken from
//! `linux-raw-sys`; [`Errno`] and the raw system calls are ours because the gate may call neither libc nor
//! std.
//!
//! ```
//! use lp_abi::linux::__NR_getpid;
//! use lp_abi::{Errno, syscall};
//!
//! // SAFETY: getpid(2) has no effect.
//! let pid = unsafe { syscall!(__NR_getpid) }?;
//! assert_eq!(pid as u32, std::process::id());
//! assert_eq!(Errno::from_ret(-2), Err(Errno::ENOENT));
//! # Ok::<(), Errno>(())
//! ```
#![deny(unsafe_code)]
#![warn(unreachable_pub)]
#![no_std]

pub mod dirent64;
mod errno;
mod fd;
pub mod fnv;
pub mod gated;
pub mod image;
#[allow(unsafe_code, reason = "the caller lends what it owns")]
pub mod lent;
pub mod library;
#[cfg(miri)]
#[allow(unsafe_code, reason = "memory is the interpreter's to give")]
mod miri;
pub mod outline;
#[allow(unsafe_code, reason = "close(2)")]
mod owned_fd;
pub mod refusal;
pub mod script;
pub mod signature;
#[allow(unsafe_code, reason = "system calls")]
pub mod sys;
pub mod text;
#[allow(unsafe_code, reason = "what a pointer is good for is a promise")]
mod user;

pub use errno::{Errno, Result};
pub use fd::Fd;
/// Constants and structures of `<linux/*.h>` and `<asm/*.h>`.
pub use linux_raw_sys::general as linux;
/// `ioctl` request numbers.
pub use linux_raw_sys::ioctl;
/// Options of prctl(2).
pub use linux_raw_sys::prctl;
pub use owned_fd::OwnedFd;
pub use user::{UserPtr, UserSlice};

/// Size in bytes of a page of memory and of a page of a Lightpath file.
pub const PAGE_SIZE: usize = 4096;
/// Longest file name, in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// Longest path in bytes, including its terminating NUL (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;
/// Maximum number of symbolic links followed in one path before `ELOOP` (path_resolution(7)).
pub const MAX_SYMLINKS: u32 = 40;
/// Maximum number of bytes that one read or write transfers (read(2)).
pub const MAX_RW_COUNT: usize = 0x7fff_f000;
