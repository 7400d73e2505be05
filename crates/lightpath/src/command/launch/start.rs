//! Starting a command in a run: this process becomes it, or waits for it.

use std::ffi::OsString;

use super::exec::Launch;
use super::supervise::{self, End};
use crate::command::cache::within::Outlines;
use crate::command::cache::{directory, filled};
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION};
use crate::command::output::message;
use crate::command::program::inherited;
use crate::command::run::claim::Claim;
use crate::command::run::record::Paths;

/// Starts the command with the mounts of `options`, with the run record that `open` claims. If something
/// remains to be done when the command has ended, `at_end` does it.
pub(crate) fn start(
    options: &Options,
    command: &[OsString],
    open: impl FnOnce(&Paths<'_>) -> Result<Claim, Failure>,
    at_end: impl FnOnce(&Claim, End) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let (mut launch, claim) = prepare(options, command, open)?;
    let enters = options.joins || !options.over.is_empty();
    let directory = enters.then(std::env::current_dir).and_then(Result::ok);
    let slot = directory.map(|directory| claim.slot_in(&directory)).transpose()?;
    match options.stats || options.apply || options.ask || options.scratch.is_some() {
        true => {
            let slot = slot.map_or_else(|| claim.slot(), Ok)?;
            let ended = supervise::run_beside(&mut launch, &claim, &slot, |_| ())?;
            if options.stats {
                message::write(&claim.counts().table());
            }
            at_end(&claim, ended.end)
        }
        false => Err(launch.exec(&claim, slot.as_ref())),
    }
}

/// Nothing remains to be done: this process ends as the command did.
pub(crate) fn as_it_ended(_: &Claim, end: End) -> Result<u8, Failure> {
    Ok(end.pass_on())
}

/// Finds the command, extracts the gate and claims a run record.
pub(crate) fn prepare(
    options: &Options,
    command: &[OsString],
    open: impl FnOnce(&Paths<'_>) -> Result<Claim, Failure>,
) -> Result<(Launch, Claim), Failure> {
    inherited::close_rings();
    let mut launch = Launch::new(options, command)?;
    let cache = directory::find().map_err(|line| Failure::new(REGION, line))?;
    let outlines = Outlines::from_environment().map_err(|line| Failure::new(REGION, line))?;
    let filled = filled::fill(&cache, outlines).map_err(|line| Failure::new(REGION, line))?;
    let library = filled.library.as_ref();
    launch.set_environment(options, &filled.preload, library.map(|library| &*library.directory))?;
    launch.start_static(filled.loader)?;
    let claim = open(&Paths { cache: &cache, preload: &filled.preload, library })?;
    Ok((launch, claim))
}
