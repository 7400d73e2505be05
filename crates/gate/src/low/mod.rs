//! The low half: how calls arrive, and how processes and threads live.
//!
//! It answers only the calls that concern processes: fork, vfork, clone, exec, exit, sigaction, and mappings
//! of code. It hands everything else to the high half through one trait, [`above::Above`]. Without a region
//! it runs alone: with the table [`start::process_calls::PROCESS`] a program runs patched, and every file
//! call goes to the kernel.
//!
//! Rooms, lowest first; each uses only those above it in this list:
//!
//! | room | what |
//! |---|---|
//! | [`tools`] | text, paths and error lines without an allocator |
//! | [`object`] | ELF files, and the objects that are loaded |
//! | [`thread`] | the records of the process and of its threads |
//! | [`dispatch`] | dispatch tables, and what handlers return |
//! | [`above`] | the trait that the high half implements |
//! | [`live`] | deferred signals, fork, clone, exit |
//! | [`arrive`] | entries from thunks, signal handlers, sigaction(2) |
//! | [`cover`] | patching objects |
//! | [`exec`] | execve(2) of host files |
//! | [`start`] | attaching to a program |

pub(crate) mod above;
pub(crate) mod arrive;
pub(crate) mod cover;
pub(crate) mod dispatch;
pub(crate) mod exec;
pub(crate) mod live;
pub(crate) mod object;
pub(crate) mod start;
pub(crate) mod thread;
pub(crate) mod tools;
