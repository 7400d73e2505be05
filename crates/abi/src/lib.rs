//! Linux's numbers, structures and errors under the names that the rest of Lightpath uses.
//!
//! This crate has no state and no policy. Constants and structures are those of the kernel's user API, from
//! `linux-raw-sys`. [`Errno`] and the raw system calls are our own, because the gate may call neither libc
//! nor std.
#![no_std]

mod errno;
pub mod gated;
pub mod image;
pub mod refusal;
pub mod signature;
pub mod sys;

pub use errno::{Errno, Result};
/// Constants and structures of `<linux/*.h>` and `<asm/*.h>`.
pub use linux_raw_sys::general as linux;
/// `ioctl` request numbers.
pub use linux_raw_sys::ioctl;

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
