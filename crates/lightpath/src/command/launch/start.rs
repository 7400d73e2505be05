//! Starting a command in a run: this process becomes it, or waits for it.

use std::ffi::OsString;

use super::exec::Launch;
use super::supervise::{self, End};
use crate::command::cache::{directory, preload, within};
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION};
use crate::command::program::inherited;
use crate::command::run::claim::Session;
use crate::command::run::record::Paths;

/// Starts the command with the mounts of `options`, in the session that `open` gives. If something remains to
/// be done when the command has ended, `at_end` does it.
pub(crate) fn start(
    options: &Options,
    command: &[OsString],
    open: impl FnOnce(&Paths<'_>) -> Result<Session, Failure>,
    at_end: impl FnOnce(&Session, End) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let (mut launch, session) = prepare(options, command, open)?;
    let directory = (!options.over.is_empty()).then(std::env::current_dir).and_then(Result::ok);
    let slot = directory.map(|directory| session.claim_in(&directory)).transpose()?;
    match options.stats || options.apply || options.ask || options.scratch.is_some() {
        true => {
            let slot = slot.map_or_else(|| session.claim(), Ok)?;
            let ended = supervise::run_beside(&mut launch, &session, &slot, |_| ())?;
            if options.stats {
                eprint!("{}", session.counts().table());
            }
            at_end(&session, ended.end)
        }
        false => Err(launch.exec(&session, slot.as_ref())),
    }
}

/// Nothing remains to be done: this process ends as the command did.
pub(crate) fn as_it_ended(_: &Session, end: End) -> Result<u8, Failure> {
    Ok(end.pass_on())
}

/// Finds the command, extracts the gate and opens the session.
pub(crate) fn prepare(
    options: &Options,
    command: &[OsString],
    open: impl FnOnce(&Paths<'_>) -> Result<Session, Failure>,
) -> Result<(Launch, Session), Failure> {
    inherited::check()?;
    let mut launch = Launch::new(options, command)?;
    let cache = directory::find().map_err(|line| Failure::new(REGION, line))?;
    let preload = preload::extract(&cache).map_err(|line| Failure::new(REGION, line))?;
    let loader = preload::extract_static(&cache).map_err(|line| Failure::new(REGION, line))?;
    let library = within::place(&cache).ok();
    launch.set_environment(options, &preload, library.as_ref().map(|library| &*library.directory))?;
    launch.start_static(loader)?;
    let session = open(&Paths { cache: &cache, preload: &preload, library: library.as_ref() })?;
    Ok((launch, session))
}
