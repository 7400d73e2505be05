//! The gate intercepts a program's system calls and answers those on mounts, in the program's own process.
//!
//! # How a call travels
//! 1. [`low::start::attach`] replaces the pages of loaded objects that contain `syscall` instructions, the C
//!    library's first, with patched copies from the bundle of site images ([`lp_abi::image`], built by
//!    `lp-sites`). A jump at each patched site leads to a *thunk*, which calls `low::arrive::entry`.
//! 2. `low::arrive::entry` saves what the kernel would preserve, marks the thread as being in the gate, and
//!    calls the handler that the dispatch table names for the number in `rax`. `low::dispatch` describes the
//!    tables.
//! 3. The handler answers the call or returns `low::dispatch::NOT_OURS`. In the latter case the site's own
//!    `syscall` runs at its own address with its own registers.
//! 4. Handlers of signals that arrived meanwhile, which were deferred (`low::live::deferred`), run.
//!
//! # Two halves
//! `low` is this machinery, with the calls that concern processes rather than files: fork, vfork, clone,
//! exec, exit, sigaction, and mappings of code. `high` decodes the file calls. The low half reaches it
//! through one trait, `low::above::Above`, and through the addresses in dispatch tables. The low half also
//! runs alone: `LIGHTPATH_GATE=-:BUNDLE:BUILDER` requests that.
//!
//! Each half is a sequence of folders, listed in its mod.rs. Imports point down only; `scripts/rooms` checks
//! this.
//!
//! # Rules on every path
//! No allocation, no panic, no libc, no thread-local but `low::thread::tls`. SSE2 only, so that vector
//! registers beyond xmm keep the program's values. The exception is the copies of `high::calls::quick`, at
//! whose sites those registers are dead.
#![no_std]
#![warn(unreachable_pub)]

mod high;
mod low;

/// The high half. The low half knows it through [`low::above`].
pub(crate) struct High;

pub use high::table::calls;
pub use low::object::objects;
pub use low::start::{attach, auditor, process_calls, standalone};
pub use low::tools::report;
