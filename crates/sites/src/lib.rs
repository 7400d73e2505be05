//! Finds the `syscall` instructions of ELF objects, and makes the *site images* by which the gate patches them.
//!
//! The way from a file to an entry of the bundle ([`lp_abi::image`]):
//! 1. [`elf`]: segments, function bounds, unwind tables, addresses taken in data.
//! 2. [`code`]: disassembly of the functions that contain the bytes `0f 05`, and the branch targets near them.
//! 3. [`number`]: which system call a site makes, by looking back along all paths for what `eax` was set to.
//! 4. [`window`]: which instructions before (or around) a site make room for a jump.
//! 5. [`thunk`]: the code that the jump leads to.
//! 6. [`bundle`]: the file in which images are kept.
//!
//! [`merge`] makes of the system's C library and the gate one object, whose sites need no patching any more.
//!
//! [`by_gs`](mod@by_gs) makes the gate that static programs get.
//!
//! A site of a call that [`lp_abi::gated`] lists, or whose number is not known beforehand, must be patched. If it cannot
//! be, the object is refused: a program never runs half-covered.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "maps files")]
pub mod bundle;
pub mod by_gs;
pub mod code;
pub mod elf;
pub mod frames;
pub mod image;
pub mod merge;
pub mod number;
pub mod thunk;
pub mod window;

pub use bundle::{Bundle, Status};
pub use by_gs::by_gs;
pub use image::{Analysis, Patch, Refusal, analyse};
pub use merge::merge;
