//! `lightpath ps`: the runs under way, their regions and processes.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use crate::command::output::failure::Failure;
use crate::command::output::print::print;
use crate::command::output::shown::{human, printable, user};
use crate::command::program::caller::check_outside;
use crate::command::region::space::space;
use crate::command::run::counts::Counts;
use crate::command::run::under_way::{self, Run};

const AFTER_HELP: &str = "\
A run is named by the pid of its oldest process: that of the command, as long as it runs. Runs of other \
users show to root only, and without what their regions hold.";

/// `lightpath ps`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ps {
    /// Print it as JSON, sizes in bytes.
    #[arg(long)]
    json: bool,
}

/// Lists the runs that the caller may see.
pub(crate) fn ps(args: &Ps) -> Result<u8, Failure> {
    check_outside()?;
    let runs = under_way::all();
    let text = if args.json { json(&runs) } else { runs.iter().map(paragraph).collect() };
    print(text.as_bytes())
}

/// Calls answered in process, if the run counts them.
fn calls(run: &Run) -> Option<u64> {
    run.region.filter(|_| run.is_counted).map(|region| Counts::of(region).answered())
}

fn paragraph(run: &Run) -> String {
    let place = run.file.as_ref().map_or("memory".to_owned(), |file| file.display().to_string());
    let mut text = format!("run {}", run.name());
    // Writing to a String does not fail.
    let _ = match run.region {
        Some(region) => {
            let (used, limit) = space(region);
            let mounts: Vec<_> = run.mounts.iter().map(|mount| mount.display().to_string()).collect();
            write!(text, ": {} in {place}, {} of {} used", mounts.join(" "), human(used), human(limit))
        }
        None => write!(text, " of {}: in {place}", user(run.members[0].owner)),
    };
    if let Some(calls) = calls(run) {
        let _ = write!(text, ", {calls} calls answered");
    }
    let mut text = one_line(&text);
    for member in &run.members {
        let _ = write!(text, "  {:>7}  {}", member.pid, one_line(&member.command()));
    }
    text
}

/// `text` without control characters, which names and arguments may hold, as a line.
fn one_line(text: &str) -> String {
    printable(text) + "\n"
}

fn json(runs: &[Run]) -> String {
    let all: Vec<_> = runs
        .iter()
        .map(|run| {
            let space = run.region.map(space);
            let processes: Vec<_> = run
                .members
                .iter()
                .map(|member| json!({ "pid": member.pid, "command": member.command() }))
                .collect();
            json!({
                "run": run.name(),
                "user": run.members[0].owner,
                "mounts": run.region.map(|_| &run.mounts),
                "file": run.file,
                "used": space.map(|(used, _)| used),
                "limit": space.map(|(_, limit)| limit),
                "calls": calls(run),
                "processes": processes,
            })
        })
        .collect();
    format!("{}\n", serde_json::Value::from(all))
}
