//! `lightpath run` and `lightpath shell`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::command::launch::start::{as_it_ended, start};
use crate::command::options::mountpoint;
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, USAGE};
use crate::command::over;
use crate::command::program::caller::check_caller;
use crate::command::run::claim::Claim;

const AFTER_HELP: &str = "\
Exit status: that of CMD, or death by the signal that killed CMD, which a shell shows as 128+N; 127 if \
CMD is not found; 126 if it cannot be run or cannot be covered (setuid, or built for another machine); 2 for \
a usage error; 1 if the region cannot be used.

Example: lightpath run -- sh -c 'cp -r /usr/include $LIGHTPATH && du -sh $LIGHTPATH'";

/// `lightpath run`.
#[derive(Args)]
#[command(after_help = AFTER_HELP, override_usage = "lightpath run [OPTIONS] -- CMD [ARG]...")]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) options: Options,
    /// The program to run, looked up in PATH, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// `lightpath shell`.
#[derive(Args)]
pub(crate) struct Shell {
    #[command(flatten)]
    pub(crate) options: Options,
}

/// `lightpath run`: becomes the command, so that its status, signals, terminal and job control are the
/// command's own.
pub(crate) fn run(options: &Options, command: &[OsString]) -> Result<u8, Failure> {
    if !options.over.is_empty() {
        return over::run::run(options, command);
    }
    mountpoint::check_apart(&options.at).map_err(|line| Failure::new(USAGE, line))?;
    check_caller()?;
    start(options, command, |paths| Claim::open(options, paths), as_it_ended)
}

/// `lightpath shell`: the same with the user's shell.
pub(crate) fn shell(options: &Options) -> Result<u8, Failure> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    run(options, &[shell.unwrap_or_else(|| OsString::from("/bin/sh"))])
}
