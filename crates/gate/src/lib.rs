//! The gate: how a program's system calls arrive in the file system, in the program's own process.
//!
//! # The way of a call
//! 1. [`low::start::attach`] has replaced pages of the loaded C library (and of every other object with `syscall` instructions that
//!    matter) by patched copies from the bundle of site images ([`lp_abi::image`], built by `lp-sites`). At a patched
//!    site a jump leads to a *thunk*, the thunk calls `low::arrive::entry`.
//! 2. `low::arrive::entry` saves what the kernel would preserve, marks the thread as being in the gate, and calls the handler that
//!    the dispatch table names for the number in `rax`; see `low::dispatch` for how tables are written.
//! 3. The handler answers the call, or returns `low::dispatch::NOT_OURS`, and the site's own `syscall` runs, at its own
//!    address and with its own registers.
//! 4. Signals that came meanwhile had their handlers put off (`low::live::deferred`); they run now.
//!
//! # Two halves
//! `low` is this machinery, with the calls that concern processes rather than files: fork, vfork, clone,
//! exec, exit, sigaction, and mappings of code. `high` decodes the file calls. The low half reaches it
//! through one trait, `low::above::Above`, and through the addresses in dispatch tables. The low half also
//! runs alone: `LIGHTPATH_GATE=-:BUNDLE:BUILDER` asks for that.
//!
//! Each half is a row of folders, listed in its mod.rs, in which imports point down only; `scripts/rooms`
//! checks them.
//!
//! # Rules on every path
//! No allocation, no panic, no libc, no thread-local but `low::thread::tls`; SSE2 only, so that vector
//! registers beyond xmm keep what the program has in them; but for copies by `high::calls::quick`, whose
//! sites hold nothing there.
#![no_std]

mod high;
mod low;

/// The high half, as the low half knows it: see [`low::above`].
pub(crate) struct High;

pub use high::table::calls;
pub use low::object::objects;
pub use low::start::{attach, auditor, process_calls, standalone};
pub use low::tools::report;
