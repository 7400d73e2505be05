//! The high half: what calls mean.
//!
//! Handlers decode arguments, decide whether a path or a descriptor is ours, and ask `lp-vfs`. The low half
//! calls it through the dispatch tables and [`above`] only.
//!
//! Rooms, lowest first; each uses the low half and only those above it in this list:
//!
//! | room | what |
//! |---|---|
//! | [`memory`] | mappings of files of ours |
//! | [`frame`] | what every handler uses |
//! | [`run`] | the run, its mounts, its region |
//! | [`fd`] | routing of descriptors, and placeholders |
//! | [`route`] | routing of paths |
//! | [`special`] | FIFOs and sockets |
//! | [`watch`] | inotify's shadows |
//! | [`life`] | joining and leaving a run, tasks, credentials |
//! | [`calls`] | handlers, one file per family |
//! | [`table`] | dispatch tables |
//! | [`above`] | what the low half calls |

pub(crate) mod above;
pub(crate) mod calls;
pub(crate) mod fd;
pub(crate) mod frame;
pub(crate) mod life;
pub(crate) mod memory;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod special;
pub(crate) mod table;
pub(crate) mod watch;
