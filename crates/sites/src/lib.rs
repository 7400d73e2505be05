//! Finds the `syscall` instructions of ELF objects, and creates the *site images* with which the gate patches
//! them.
//!
//! The steps from a file to an entry of the bundle ([`lp_abi::image`]):
//! 1. [`elf`]: segments, function bounds, unwind tables, addresses taken in data.
//! 2. `code`: disassembly of the functions that contain the bytes `0f 05`, and the branch targets near
//!    them.
//! 3. [`number`]: the system call of a site, by tracing the value of `eax` back along all paths.
//! 4. `window`: the instructions before (or around) a site that are displaced by a jump.
//! 5. `function`: functions that make a call through others, and are displaced as a whole.
//! 6. [`thunk`]: the target of the jump.
//! 7. [`bundle`]: the file that stores images.
//!
//! [`unwind`] tells debuggers and unwinders about thunks.
//!
//! `merge` combines the system's C library and the gate into one object, whose sites need no patching at
//! run time.
//!
//! [`linker`](mod@linker) makes a dynamic linker that starts programs faster on virtual machines.
//!
//! [`by_gs`](mod@by_gs) creates the gate for static programs.
//!
//! A site of a call that [`lp_abi::gated`] lists, or whose number is not known beforehand, must be patched.
//! If it cannot be, the object is refused: a program never runs half-covered.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

#[allow(unsafe_code, reason = "maps files")]
pub mod bundle;
pub mod by_gs;
mod code;
pub mod elf;
mod frames;
mod function;
pub mod image;
pub mod linker;
pub mod merge;
pub mod number;
pub mod thunk;
pub mod unwind;
mod window;

pub use bundle::{Bundle, Status};
pub use by_gs::by_gs;
pub use image::{Analysis, ObjectRefusal, Patch, analyse};
pub use linker::linker;
pub use merge::merge;
