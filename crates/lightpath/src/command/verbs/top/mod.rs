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

use clap::Args;

use crate::command::output::failure::{Failure, REGION, USAGE, reason};
use crate::command::output::print::print;
use crate::command::program::caller::check_outside;
use report::Report;
use sample::Sample;

const AFTER_HELP: &str = "\
Keys: Up and Down choose a run, Tab a table; s changes what the runs are sorted by, / filters them by \
command or mount, q ends. Calls are counted in runs that were started with --stats.";

/// `lightpath top`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Top {
    /// Print a line of JSON for each interval: rates per second, sizes in bytes.
    #[arg(long)]
    json: bool,
    /// Seconds between two looks.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = delay)]
    delay: f64,
    /// Lines that --json prints; 0 for no end [default: 1].
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = count)]
    count: Option<u64>,
}

/// Shows the runs that the caller may see until a key ends it, or prints them as JSON.
pub(crate) fn top(args: &Top) -> Result<u8, Failure> {
    check_outside()?;
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

/// Reads the seconds between two looks.
fn delay(text: &str) -> Result<f64, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or("use seconds, from 0.1 to 3600")
}

/// Reads a count of lines.
fn count(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "use a number, 0 for no end")
}
