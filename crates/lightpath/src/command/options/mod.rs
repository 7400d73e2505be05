//! Options and arguments that several subcommands have.

pub(crate) mod mountpoint;
pub(crate) mod pid;
pub(crate) mod run;
pub(crate) mod size;
