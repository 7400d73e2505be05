//! The subcommands, a file or a folder for each noun, with its arguments and its help. Those for what is over
//! directories are in `over`.

pub(crate) mod doctor;
pub(crate) mod exec;
pub(crate) mod freeze;
pub(crate) mod fsck;
pub(crate) mod info;
pub(crate) mod pack;
pub(crate) mod place;
pub(crate) mod ps;
pub(crate) mod run;
pub(crate) mod sites;
pub(crate) mod top;
pub(crate) mod trace;
