//! The `lightpath` command, in rooms from the command line down to what it prints.

mod cache;
pub(crate) mod cli;
mod copies;
mod descriptors;
mod launch;
mod options;
mod output;
mod over;
mod program;
mod region;
mod run;
mod session;
mod verbs;
