//! `lightpath exec`: a command that joins a run under way.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::command::launch::start::{as_it_ended, start};
use crate::command::options::pid::pid;
use crate::command::output::failure::Failure;
use crate::command::program::caller::check_caller;
use crate::command::run::claim::Claim;
use crate::command::run::join;

const AFTER_HELP: &str = "\
The command begins in the current directory, as the run shows it if that is in a mount.

Exit status: as of run; 126 as well if RUN is another user's.

Example: lightpath exec 4711 -- ls -l /light";

/// `lightpath exec`.
#[derive(Args)]
#[command(after_help = AFTER_HELP, override_usage = "lightpath exec <RUN> -- CMD [ARG]...")]
pub(crate) struct Exec {
    /// The run: the pid of any of its processes (lightpath ps).
    #[arg(value_name = "RUN", value_parser = pid)]
    pub(super) run: u32,
    /// The program to run, looked up in PATH, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(super) command: Vec<OsString>,
}

/// Becomes the command, within the run that process `args.run` belongs to.
pub(crate) fn exec(args: &Exec) -> Result<u8, Failure> {
    check_caller()?;
    let (file, options) = join::entrance(args.run)?;
    start(&options, &args.command, |paths| Claim::join(file.into(), args.run, &options, paths), as_it_ended)
}
