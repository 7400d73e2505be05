//! `lightpath run` and `lightpath shell`.

use std::ffi::OsString;

use crate::command::launch::start::{as_it_ended, start};
use crate::command::options::mountpoint;
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, USAGE};
use crate::command::over;
use crate::command::program::caller::check_caller;
use crate::command::run::claim::Session;

/// `lightpath run`: becomes the command, so that its status, signals, terminal and job control are the
/// command's own.
pub(crate) fn run(options: &Options, command: &[OsString]) -> Result<u8, Failure> {
    if !options.over.is_empty() {
        return over::run::run(options, command);
    }
    mountpoint::check_apart(&options.at).map_err(|line| Failure::new(USAGE, line))?;
    check_caller()?;
    start(options, command, |paths| Session::open(options, paths), as_it_ended)
}

/// `lightpath shell`: the same with the user's shell.
pub(crate) fn shell(options: &Options) -> Result<u8, Failure> {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    run(options, &[shell.unwrap_or_else(|| OsString::from("/bin/sh"))])
}
