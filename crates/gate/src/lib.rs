//! The gate: how a program's system calls arrive in the file system, in the program's own process.
//!
//! # The way of a call
//! 1. [`attach`] has replaced pages of the loaded C library (and of every other object with `syscall` instructions that
//!    matter) by patched copies from the bundle of site images ([`lp_abi::image`], built by `lp-sites`). At a patched
//!    site a jump leads to a *thunk*, the thunk calls [`entry`].
//! 2. [`entry`] saves what the kernel would preserve, marks the thread as being in the gate, and calls the handler that
//!    the dispatch table names for the number in `rax`; see [`dispatch`] for how tables are written.
//! 3. The handler answers the call, or returns [`dispatch::NOT_OURS`], and the site's own `syscall` runs, at its own
//!    address and with its own registers.
//! 4. Signals that came meanwhile had their handlers put off ([`deferred`]); they run now.
//!
//! # Two halves
//! The low half is this machinery, with the calls that are about processes rather than files: fork, vfork, clone, exec,
//! exit, sigaction, and mappings of code. The high half, [`calls`], decodes the file calls. The low half calls it
//! through [`above`] only. [`table::PROCESS`] is the low half alone: with it a program runs patched, and everything that
//! is a file call goes to the kernel; `LIGHTPATH_GATE=-:BUNDLE:BUILDER` asks for that.
//!
//! # Rules on every path
//! No allocation, no panic, no libc, no thread-local but [`tls`]; SSE2 only, so that vector registers beyond xmm keep
//! what the program has in them; but for copies by [`calls::quick`], whose sites hold nothing there.
#![no_std]

mod high;
mod low;

pub use high::table::calls;
pub use low::object::objects;
pub use low::start::{attach, auditor, standalone};
pub use low::tools::report;
