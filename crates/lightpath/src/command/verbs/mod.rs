//! The subcommands, a file for each noun, with its arguments and its help.

pub(crate) mod exec;
pub(crate) mod place;
pub(crate) mod run;
