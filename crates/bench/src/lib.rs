//! `lightpath bench`: the workloads that Lightpath was built for, measured side by side.
//!
//! Each workload is a C program (`program`) that knows nothing of Lightpath, times itself and
//! prints its figures. The `runner` runs the same binary in several `place`s (tmpfs, the disk's
//! file system, and a Lightpath mount under `lightpath run`), interleaved, several samples each.
//! What comes out is one `report::Report`, shown as tables (`table`), JSON, or a page (`html`).
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod apps;
mod args;
#[allow(unsafe_code, reason = "processes and memory that they share")]
mod before;
mod catalogue;
mod chart;
mod compile;
mod figures;
mod html;
mod machine;
mod place;
mod report;
mod runner;
mod svg;
mod table;

pub use args::Args;

use anyhow::{Context, Result, bail};
use catalogue::{Selection, Workload};
use report::{Report, SCHEMA};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Runs the workloads that `args` names and prints the report on standard output.
///
/// Exit status: 0; 1 if a workload failed somewhere; 2 if a NAME is unknown.
pub fn main(args: Args) -> Result<ExitCode> {
    if let Some(spec) = &args.in_process {
        print!("{}", before::sample(spec)?);
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        print!("{}", catalogue::listing());
        return Ok(ExitCode::SUCCESS);
    }
    let selection = match Selection::of(&args.names) {
        Ok(selection) => selection,
        Err(unknown) => {
            eprintln!("lightpath bench: {unknown}");
            return Ok(ExitCode::from(2));
        }
    };
    // Created before the first measurement: a report that cannot be saved is useless after ten minutes.
    for file in args.json.iter().chain(&args.html).chain(&args.svg) {
        writable(file)?;
    }
    let report = match &args.from {
        Some(file) => read(file)?,
        None => runner::run(&selection, &args)?,
    };
    let mut out = std::io::stdout().lock();
    write!(out, "{}", table::render(&report))?;
    if args.goals {
        write!(out, "{}", table::render_figures(&report))?;
    }
    if let Some(file) = &args.json {
        keep(file, &serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(file) = &args.html {
        keep(file, &html::page(&report, args.goals))?;
    }
    if let Some(file) = &args.svg {
        keep(file, &chart::speedup_document(&report, args.goals))?;
    }
    let failed = report.workloads.iter().any(|workload| !workload.failures.is_empty());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(file: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let report: Report =
        serde_json::from_str(&text).with_context(|| format!("{} is not a bench report", file.display()))?;
    if report.schema != SCHEMA
        || report.places.is_empty()
        || report.workloads.iter().any(|w| w.places.is_empty())
    {
        bail!("{} is a report of another version", file.display());
    }
    Ok(report)
}

fn writable(file: &Path) -> Result<()> {
    std::fs::File::options()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

fn keep(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
