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
//! through [`hooks`] only. [`table::PROCESS`] is the low half alone: with it a program runs patched, and everything that
//! is a file call goes to the kernel; `LIGHTPATH_GATE=-:BUNDLE:BUILDER` asks for that.
//!
//! # Rules on every path
//! No allocation, no panic, no libc, no thread-local but [`tls`]; SSE2 only, so that vector registers beyond xmm keep
//! what the program has in them; but for copies by [`calls::quick`], whose sites hold nothing there.
#![no_std]

mod across;
pub mod address;
mod apart;
pub mod attach;
pub mod calls;
pub mod count;
mod deferred;
pub mod descriptor;
mod device;
pub mod dispatch;
mod elf;
pub mod entry;
mod entry_quick;
pub mod exec;
pub mod exec_check;
pub mod exec_env;
pub mod exec_known;
pub mod fd_directory;
mod filter;
mod home;
pub mod hooks;
pub mod hostlink;
pub mod libraries;
mod limited;
pub mod magic;
pub mod mapping;
pub mod maps;
pub mod mounts;
mod names;
pub mod node;
pub mod objects;
mod own_descriptor;
pub mod patch;
pub mod path;
pub mod placeholder;
pub mod process;
pub mod report;
pub mod rights;
pub mod rtld_audit;
pub mod settings;
mod shadow;
mod shadow_end;
mod shadow_fd;
pub mod signal;
pub mod standalone;
pub mod table;
pub mod text;
pub mod thread;
pub mod tls;
pub mod traced;
mod tree;
mod words;
