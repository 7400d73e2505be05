//! `lightpath exec`: a command that joins a run under way.

use crate::command::cli::Join;
use crate::command::launch::start::{as_it_ended, start};
use crate::command::output::failure::Failure;
use crate::command::program::caller::check_caller;
use crate::command::run::claim::Session;
use crate::command::run::join;

/// Becomes the command, within the run that process `args.run` belongs to.
pub(crate) fn exec(args: &Join) -> Result<u8, Failure> {
    check_caller()?;
    let (file, options) = join::entrance(args.run)?;
    start(&options, &args.command, |paths| Session::join(file.into(), args.run, &options, paths), as_it_ended)
}
