//! `lightpath top`: what the runs of this machine do, second by second.
//!
//! | file | what |
//! |---|---|
//! | `sample.rs` | what the regions of all runs count at one moment |
//! | `report.rs` | the rates between two samples, and their JSON |
//! | `screen.rs` | the terminal: tables, keys |
//!
//! Nothing of it disturbs a run: the counters are those of `run --stats`, and the rest is read from the
//! region as it is.

mod report;
mod sample;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use crate::command::cli::Top;
use crate::command::output::failure::{Failure, REGION, USAGE, reason};
use crate::command::output::print::print;
use crate::command::ps;
use report::Report;
use sample::Sample;

/// Shows the runs that the caller may see until a key ends it, or prints them as JSON.
pub(crate) fn top(args: &Top) -> Result<u8, Failure> {
    ps::check_outside()?;
    let delay = Duration::from_secs_f64(args.delay);
    if args.json {
        return json(delay, args.count.unwrap_or(1));
    }
    if args.count.is_some() {
        return Err(Failure::new(USAGE, "--count belongs to --json"));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new(USAGE, "top needs a terminal; use --json, or lightpath ps for a list"));
    }
    screen::run(delay).map(|()| 0).map_err(|e| Failure::new(REGION, format!("the terminal: {}", reason(&e))))
}

/// Prints `count` reports, each a line; 0 means without end.
fn json(delay: Duration, count: u64) -> Result<u8, Failure> {
    let mut before = Sample::take(None);
    let mut printed = 0;
    loop {
        std::thread::sleep(delay);
        let now = Sample::take(Some(&before));
        print(format!("{}\n", Report::between(&before, &now).json()).as_bytes())?;
        before = now;
        printed += 1;
        if printed == count {
            return Ok(0);
        }
    }
}
