//! [`Plan`]: what is asked of a trace, and [`Beside`]: what does it.

use std::io::{self, Write};

use lp_abi::Fd;
use lp_abi::gated::CALLS;
use lp_region::Region;
use lp_region::sync::Ordering::Relaxed;
use lp_region::trace::{Rings, ask, hold};

use super::format;
use super::reader::Reading;
use super::spool::Spool;
use super::summary::Summary;
use crate::command::output::failure::{Failure, REGION, reason};

/// What is asked for.
pub(super) struct Plan {
    /// A bit for each call; all without.
    pub(super) wanted: Option<[u64; CALLS / 64]>,
    /// A table at the end.
    pub(super) summary: bool,
    /// The kernel's calls too.
    pub(super) host: bool,
    /// Whether the output is a file.
    pub(super) is_file: bool,
}

impl Plan {
    /// Says in the rings behind `fd` what is to be recorded.
    pub(super) fn ask(&self, fd: Fd) -> Result<Rings, Failure> {
        let fail = |e: lp_abi::Errno| {
            let error = io::Error::from_raw_os_error(e.number());
            Failure::new(REGION, format!("cannot map the trace: {}", reason(&error)))
        };
        // SAFETY: whoever made the file made it as long as the rings and sealed its length.
        let rings = unsafe { Rings::map(fd) }.map_err(fail)?;
        hold(fd).map_err(fail)?;
        let front = rings.front();
        // Relaxed: nobody is told of the tracer before this is done.
        front.host.store(u32::from(self.host), Relaxed);
        let what = if self.summary { ask::SUM } else { ask::ENTRY };
        let wanted = self.wanted.unwrap_or([u64::MAX; CALLS / 64]);
        rings.begin_to_read(what, |number| wanted[number / 64] >> (number % 64) & 1 != 0);
        Ok(rings)
    }

    /// Begins to read; lines of thread `first` need no id.
    pub(super) fn begin<W: Write + Send + 'static>(
        &self,
        region: Region<'static>,
        rings: Rings,
        first: u32,
        output: W,
    ) -> Beside<W> {
        if self.summary {
            return Beside::Sums(Summary::new(region, rings, output));
        }
        let lines = format::Lines::new(output, self.is_file, first);
        Beside::Calls(Reading::start(Spool::new(region, rings), lines))
    }
}

/// What is done while the command runs, and at its end.
pub(super) enum Beside<W> {
    Calls(Reading),
    Sums(Summary<W>),
}

impl<W: Write> Beside<W> {
    pub(super) fn finish(self) -> Result<(), Failure> {
        let told = match self {
            Beside::Calls(reading) => reading.finish(),
            Beside::Sums(summary) => summary.finish(),
        };
        told.map_err(|e| Failure::new(REGION, format!("writing the trace: {}", reason(&e))))
    }
}
