//! The rates between two samples.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::sample::{OfProcess, OfRun, Sample};
use crate::command::run::counts::name;

/// What happened between two samples.
pub(super) struct Report {
    pub(super) runs: Vec<Run>,
}

/// What a run did.
pub(super) struct Run {
    pub(super) name: u32,
    pub(super) owner: u32,
    pub(super) mounts: Vec<PathBuf>,
    pub(super) file: Option<PathBuf>,
    /// Bytes in use and their limit.
    pub(super) space: Option<(u64, u64)>,
    /// Calls per second, answered in the process and passed to the kernel, if they are counted.
    pub(super) calls: Option<[f64; 2]>,
    /// The same by call, the most frequent first.
    pub(super) by_call: Vec<(String, [f64; 2])>,
    /// The busiest first.
    pub(super) processes: Vec<Process>,
    /// Threads that wait for a lock now, by what it guards.
    pub(super) waits: Vec<(&'static str, usize)>,
    /// Changes of content per second, by path, the most frequent first.
    pub(super) files: Vec<(String, f64)>,
}

/// What a process did.
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) command: String,
    /// Calls per second, as of the run.
    pub(super) calls: Option<[f64; 2]>,
    /// Threads that wait for a lock now.
    pub(super) waits: usize,
}

impl Report {
    /// The rates between two samples. Of a run or process that was not there before, all counts.
    pub(super) fn between(before: &Sample, now: &Sample) -> Report {
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(f64::MIN_POSITIVE);
        let runs = now.runs.iter().map(|run| Run::between(before.run_like(run), run, seconds));
        Report { runs: runs.collect() }
    }

    /// One line, without its end.
    pub(super) fn json(&self) -> Value {
        let pair = |calls: [f64; 2]| json!({ "in_process": round(calls[0]), "to_kernel": round(calls[1]) });
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| {
                let processes: Vec<_> = run
                    .processes
                    .iter()
                    .map(|process| {
                        json!({
                            "pid": process.pid,
                            "command": process.command,
                            "calls": process.calls.map(pair),
                            "waits": process.waits,
                        })
                    })
                    .collect();
                let by_call: serde_json::Map<_, _> =
                    run.by_call.iter().map(|(name, calls)| (name.clone(), pair(*calls))).collect();
                let waits: serde_json::Map<_, _> =
                    run.waits.iter().map(|(what, count)| ((*what).to_owned(), json!(count))).collect();
                let files: Vec<_> = run
                    .files
                    .iter()
                    .map(|(path, changes)| {
                        json!({
                            "path": path,
                            "changes": round(*changes),
                        })
                    })
                    .collect();
                json!({
                    "run": run.name,
                    "user": run.owner,
                    "mounts": run.space.map(|_| &run.mounts),
                    "file": run.file,
                    "used": run.space.map(|(used, _)| used),
                    "limit": run.space.map(|(_, limit)| limit),
                    "calls": run.calls.map(pair),
                    "by_call": by_call,
                    "processes": processes,
                    "waits": waits,
                    "files": files,
                })
            })
            .collect();
        Value::from(runs)
    }
}

impl Run {
    fn between(old: Option<&OfRun>, run: &OfRun, seconds: f64) -> Run {
        let rate = |now: u64, then: u64| now.wrapping_sub(then) as f64 / seconds;
        let is_counted = run.counts.is_some();
        let by_call = run.counts.as_ref().map_or_else(Vec::new, |counts| {
            let then = old.and_then(|old| old.counts.as_ref());
            let calls = counts.calls.iter().enumerate().map(|(number, now)| {
                let then = then.map_or([0; 3], |then| then.calls[number]);
                (name(number), [rate(now[0], then[0]), rate(now[1], then[1])])
            });
            sorted(calls.filter(|(_, calls)| sum(*calls) > 0.0), |calls| sum(*calls))
        });
        let calls = by_call.iter().fold([0.0; 2], |all, (_, calls)| [all[0] + calls[0], all[1] + calls[1]]);
        let mut processes: Vec<_> = run
            .processes
            .iter()
            .map(|process| {
                let then = old.and_then(|old| old.processes.iter().find(|old| old.pid == process.pid));
                Process {
                    pid: process.pid,
                    command: process.command.clone(),
                    calls: is_counted.then(|| made(process, then).map(|calls| calls as f64 / seconds)),
                    waits: process.waits,
                }
            })
            .collect();
        processes
            .sort_by(|a, b| sum(b.calls.unwrap_or_default()).total_cmp(&sum(a.calls.unwrap_or_default())));
        let files = run.hottest.iter().map(|(path, changes)| (path.clone(), f64::from(*changes) / seconds));
        Run {
            name: run.name,
            owner: run.owner,
            mounts: run.mounts.clone(),
            file: run.file.clone(),
            space: run.space,
            calls: is_counted.then_some(calls),
            by_call,
            processes,
            waits: run.waits.clone(),
            files: files.collect(),
        }
    }
}

/// Calls that a process has made since. A lane that it did not have then had been another's before: what it
/// has counted for that one is not known, and its calls show from the next sample on.
fn made(now: &OfProcess, then: Option<&OfProcess>) -> [u64; 2] {
    let then = then.map(|then| &then.calls);
    let since = now.calls.iter().filter_map(|(lane, now)| {
        let then = then?.get(lane)?;
        Some([now[0].wrapping_sub(then[0]), now[1].wrapping_sub(then[1])])
    });
    since.fold([0; 2], |all, calls| [all[0] + calls[0], all[1] + calls[1]])
}

/// What is behind a name, the largest first; names decide between equals, so that rows do not jump.
fn sorted<T>(rows: impl Iterator<Item = (String, T)>, by: impl Fn(&T) -> f64) -> Vec<(String, T)> {
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| by(&b.1).total_cmp(&by(&a.1)).then_with(|| a.0.cmp(&b.0)));
    rows
}

/// Calls of both kinds.
pub(super) fn sum(calls: [f64; 2]) -> f64 {
    calls[0] + calls[1]
}

fn round(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}
