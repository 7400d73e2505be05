//! The designs that the five changes replaced, restored: each workload's hot call on Lightpath's own records,
//! as it is, and with the old lock or count around it. The difference is the value of each change, at any
//! number of processes or threads, without the kernel in between.

mod calls;
mod locks;
mod stage;

pub(crate) use calls::{Design, Kind};

use crate::catalogue;
use anyhow::{Context, Result, bail};
use stage::{Stage, Workers};
use std::fmt::Write as _;
use std::time::Duration;

/// Workers of a stage: as many as the historical figures need, and some more.
const MOST_WORKERS: usize = 128;

/// One sample in a process of its own: the hidden option `--in-process` requests it as
/// `DESIGN,KIND,WORKERS,MILLISECONDS,N...`.
pub(crate) fn sample(spec: &str) -> Result<String> {
    let mut fields = spec.split(',');
    let mut next = || fields.next().with_context(|| format!("'{spec}' ends too soon"));
    let design = match next()? {
        "before" => Design::Before,
        "now" => Design::Now,
        other => bail!("no design '{other}'"),
    };
    let kind = Kind::named(next()?).context("no such kind")?;
    let (workers, word) = match next()? {
        "processes" => (Workers::Processes, "processes"),
        "threads" => (Workers::Threads, "threads"),
        other => bail!("workers are processes or threads, not {other}"),
    };
    let time = Duration::from_millis(next()?.parse()?);
    let mut figures = String::new();
    for count in fields {
        let count: usize = count.parse()?;
        let rate = Stage::new(workers, count)?.perform(design, kind, time)?;
        writeln!(figures, "{}_{word}\t{count}\tM/s\t{:.6}", kind.name(), rate / 1e6)?;
    }
    Ok(figures)
}

/// Readable names of the figures.
pub(crate) fn label(metric: &str) -> String {
    match metric.split_once('_') {
        Some((kind, workers)) => match Kind::named(kind) {
            Some(kind) => format!("{}, {workers}", kind.title()),
            None => catalogue::label(metric),
        },
        None => catalogue::label(metric),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Figure;

    #[test]
    fn every_kind_runs_in_both_designs_with_processes_and_threads() {
        for kind in Kind::ALL {
            for design in ["before", "now"] {
                for workers in ["processes", "threads"] {
                    // Only a single-threaded process may fork, and a test has several threads.
                    if workers == "processes" {
                        continue;
                    }
                    let spec = format!("{design},{},{workers},5,1,2", kind.name());
                    let output = sample(&spec).unwrap();
                    let figures: Option<Vec<_>> = output.lines().map(Figure::parse).collect();
                    let figures = figures.expect(&output);
                    assert_eq!(figures.len(), 2);
                    assert!(figures.iter().all(|figure| figure.value > 0.0), "{spec}: {output}");
                }
            }
        }
    }

    #[test]
    fn a_bad_specification_is_an_error() {
        for spec in
            ["", "now", "now,lseek", "then,lseek,threads,1,1", "now,lseek,cows,1,1", "now,lseek,threads,x,1"]
        {
            assert!(sample(spec).is_err(), "{spec}");
        }
    }
}
