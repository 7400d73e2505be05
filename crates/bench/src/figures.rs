//! The target figures: what the project promises, compared with a report.

use crate::report::{Report, paired};

/// What a figure must achieve.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    /// At least this many times as fast as the baseline.
    Faster(f64),
    /// At most this many per cent slower than the baseline.
    Dearer(f64),
    /// At most this many nanoseconds more than the baseline.
    ExtraNs(f64),
    /// With two workers, at least this many times the throughput of one.
    Scales(f64),
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) workload: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) x: Option<u32>,
    pub(crate) goal: Goal,
}

const fn target(workload: &'static str, metric: &'static str, goal: Goal) -> Target {
    Target { workload, metric, x: None, goal }
}

pub(crate) const TARGETS: &[Target] = &[
    target("calls", "lseek", Goal::Faster(9.0)),
    target("calls", "fstat", Goal::Faster(12.0)),
    target("calls", "read_1", Goal::Faster(10.0)),
    target("calls", "pread_1", Goal::Faster(15.0)),
    target("calls", "write_256", Goal::Faster(10.0)),
    target("calls", "pread_4k", Goal::Faster(4.0)),
    target("calls", "stat", Goal::Faster(7.0)),
    target("calls", "open_close", Goal::Faster(8.0)),
    target("calls", "create_unlink", Goal::Faster(8.0)),
    Target { workload: "lseek", metric: "lseek_procs", x: Some(100), goal: Goal::Faster(8.0) },
    target("fstime", "write_256_2000", Goal::Faster(9.0)),
    target("dd", "dd_wall", Goal::Faster(3.3)),
    target("sqlite", "sqlite_autocommit", Goal::Faster(3.0)),
    target("fstat", "du_hot", Goal::Faster(3.0)),
    target("tree", "tar_extract", Goal::Faster(1.0)),
    target("tree", "git_status", Goal::Faster(1.0)),
    target("tree", "rm_r", Goal::Faster(1.0)),
    target("calls", "pread_1m", Goal::Faster(1.0)),
    target("calls", "pwrite_1m", Goal::Faster(1.0)),
    target("bulk", "dd_write_1m", Goal::Faster(0.9)),
    target("bulk", "dd_read_1m", Goal::Faster(0.9)),
    target("spawn", "posix_spawn", Goal::Dearer(6.0)),
    target("calls", "host_read_1", Goal::ExtraNs(10.0)),
    target("calls", "host_lseek", Goal::ExtraNs(10.0)),
    target("calls", "host_fstat", Goal::ExtraNs(10.0)),
    target("calls", "host_pread_1", Goal::ExtraNs(10.0)),
    target("scale", "processes_files", Goal::Scales(1.9)),
    target("scale", "processes_position", Goal::Scales(1.9)),
    target("scale", "processes_stat", Goal::Scales(1.9)),
];

/// Whether `workload` has a target.
pub(crate) fn concern(workload: &str) -> bool {
    TARGETS.iter().any(|target| target.workload == workload)
}

/// A target compared with a measurement.
pub(crate) struct Verdict {
    pub(crate) target: &'static Target,
    pub(crate) label: String,
    pub(crate) unit: String,
    pub(crate) baseline: f64,
    pub(crate) lightpath: f64,
    pub(crate) ratio: f64,
    pub(crate) wanted: String,
    pub(crate) measured: String,
    pub(crate) reached: Reached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    Yes,
    No,
}

/// Every target for which `report` has figures.
pub(crate) fn verdicts(report: &Report) -> Vec<Verdict> {
    TARGETS.iter().filter_map(|target| verdict(report, target)).collect()
}

fn verdict(report: &Report, target: &'static Target) -> Option<Verdict> {
    // Scaling compares Lightpath with itself: one worker's figure is the baseline of two workers'.
    let (series, before) = match target.goal {
        Goal::Scales(_) => {
            let series = report.series(target.workload, target.metric, Some(2))?;
            let one = report.series(target.workload, target.metric, Some(1))?;
            (series, one.cell("lightpath")?)
        }
        _ => {
            let series = report.series(target.workload, target.metric, target.x)?;
            (series, series.cell(report.baseline())?)
        }
    };
    let now = series.cell("lightpath")?;
    let ratio = paired(series.better, now, before)?;
    let (now, before) = (now.median, before.median);
    let (wanted, measured, reached) = match target.goal {
        Goal::Faster(times) => (format!(">= {times}x"), format!("{ratio:.2}x"), ratio >= times),
        Goal::Dearer(percent) => {
            let extra = (1.0 / ratio - 1.0) * 100.0;
            (format!("<= {percent:+} %"), format!("{extra:+.1} %"), extra <= percent)
        }
        Goal::ExtraNs(most) => {
            (format!("<= {most:+} ns"), format!("{:+.1} ns", now - before), now - before <= most)
        }
        Goal::Scales(times) => (format!(">= {times}x of one"), format!("{ratio:.2}x"), ratio >= times),
    };
    Some(Verdict {
        target,
        label: series.label.clone(),
        unit: series.unit.clone(),
        baseline: before,
        lightpath: now,
        ratio,
        wanted,
        measured,
        reached: if reached { Reached::Yes } else { Reached::No },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::WORKLOADS;

    #[test]
    fn every_target_belongs_to_a_workload() {
        for target in TARGETS {
            assert!(WORKLOADS.iter().any(|workload| workload.name == target.workload), "{target:?}");
        }
    }
}
