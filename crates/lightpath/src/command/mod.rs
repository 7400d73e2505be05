//! The `lightpath` command, in rooms. Each uses itself and those below it (`scripts/layering`).
//!
//! | room | what |
//! |---|---|
//! | `cli` | the command line |
//! | `verbs` | the subcommands |
//! | `over` | `run --over`, and the subcommands for what it has changed |
//! | `session` | what is kept of runs over directories |
//! | `launch` | starting a command |
//! | `run` | run records, and the runs under way |
//! | `descriptors` | what the processes of a run inherit |
//! | `copies` | copies of regions |
//! | `region` | making and checking regions |
//! | `program` | whether a program can be covered |
//! | `cache` | the gate, and the libraries with it |
//! | `options` | what several subcommands are told |
//! | `output` | what the command prints |

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
