//! Runs the selected workloads: one sample in each place after the other, and round again, so that a
//! slow minute of the machine falls on all of them.

use crate::Workload;
use crate::args::Args;
use crate::catalogue::{self, Selection};
use crate::compile;
use crate::machine::Machine;
use crate::place::{self, Ground, Place};
use crate::report::{Failure, Figure, Gatherer, Report, SCHEMA, WorkloadReport};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// No workload takes this long on a machine that makes progress.
const LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn run(selection: &Selection, args: &Args) -> Result<Report> {
    let machine = Machine::look();
    let places = places(args)?;
    let scratch = tempfile::Builder::new().prefix("lightpath-bench-").tempdir()?;
    let samples = args.samples();
    let steps = selection.0.len() as u64 * u64::from(samples) * places.len() as u64;
    let progress = ProgressBar::new(steps).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed_precise} (about {eta} left)  {msg}")
            .context("the progress bar's template")?,
    );
    progress.enable_steady_tick(Duration::from_millis(200));
    let infos: Vec<_> = places.iter().map(|place| place.info.clone()).collect();
    let mut workloads = Vec::new();
    for workload in &selection.0 {
        let binary = compile::compile(workload.program, scratch.path())?;
        let mut gatherer = Gatherer::default();
        let mut failures: Vec<Failure> = Vec::new();
        for sample in 0..samples as usize {
            for turn in 0..places.len() {
                let place = &places[(sample + turn) % places.len()];
                progress.set_message(format!("{} on {}", workload.name, place.info.name));
                if failures.iter().all(|failure| failure.place != place.info.name) {
                    match sample_of(workload, &binary, place, scratch.path(), args) {
                        Ok(figures) => {
                            figures.into_iter().for_each(|figure| gatherer.add(&place.info.name, figure))
                        }
                        Err(error) => {
                            failures.push(Failure {
                                place: place.info.name.clone(),
                                error: format!("{error:#}"),
                            });
                        }
                    }
                }
                progress.inc(1);
            }
        }
        workloads.push(WorkloadReport {
            name: workload.name.to_owned(),
            title: workload.title.to_owned(),
            detail: workload.detail.to_owned(),
            series: gatherer.finish(&infos, catalogue::label),
            failures,
        });
    }
    progress.finish_and_clear();
    Ok(Report { schema: SCHEMA, command: std::env::args().collect(), machine, places: infos, workloads })
}

/// The kernel's file systems, then Lightpath. That Lightpath cannot run is said, once, and the kernel's
/// figures are still given.
fn places(args: &Args) -> Result<Vec<Place>> {
    let mut places = place::kernel_places(&args.dir)?;
    if !args.kernel_only {
        let launcher = match &args.lightpath {
            Some(path) => path.clone(),
            None => std::env::current_exe().context("cannot find this command's own path")?,
        };
        match Place::lightpath(launcher) {
            Ok(place) => places.push(place),
            Err(error) => eprintln!("lightpath bench: Lightpath cannot run here and is left out: {error:#}"),
        }
    }
    Ok(places)
}

/// All the figures of one run of `workload` in `place`, in a directory of its own.
fn sample_of(
    workload: &Workload,
    binary: &Path,
    place: &Place,
    scratch: &Path,
    args: &Args,
) -> Result<Vec<Figure>> {
    let invocations = if args.quick { workload.quick } else { workload.full };
    let mut figures = Vec::new();
    for invocation in invocations {
        let ground = place.prepare()?;
        let arguments: Vec<OsString> = invocation
            .iter()
            .map(|argument| match *argument {
                "@dir" => ground.dir.clone().into_os_string(),
                "@scratch" => scratch.as_os_str().to_owned(),
                other => other.into(),
            })
            .collect();
        figures.extend(figures_of(&ground, binary, &arguments)?);
    }
    Ok(figures)
}

fn figures_of(ground: &Ground, binary: &Path, arguments: &[OsString]) -> Result<Vec<Figure>> {
    let mut child = ground
        .command(binary, arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the workload")?;
    let (output, errors) = gather_output(&mut child)?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{status}: {}", errors.lines().last().unwrap_or("no message"));
    }
    let figures: Option<Vec<_>> = output.lines().map(Figure::parse).collect();
    figures
        .filter(|figures| !figures.is_empty())
        .with_context(|| format!("cannot read its output: {output:?}"))
}

/// Reads both outputs to their end; a child that outlives [`LIMIT`] is killed with its group.
fn gather_output(child: &mut Child) -> Result<(String, String)> {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let started = Instant::now();
    std::thread::scope(|scope| {
        let output = scope.spawn(move || read_all(stdout.as_mut()));
        let errors = scope.spawn(move || read_all(stderr.as_mut()));
        while !(output.is_finished() && errors.is_finished()) {
            if started.elapsed() > LIMIT {
                kill_process_group(Pid::from_child(child), Signal::KILL)
                    .context("cannot end an overdue workload")?;
                let _ = child.wait();
                bail!("not done after {} seconds", LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let joined = |text: std::thread::Result<std::io::Result<String>>| match text {
            Ok(text) => text.context("cannot read the workload's output"),
            Err(_) => bail!("the reader of the workload's output panicked"),
        };
        Ok((joined(output.join())?, joined(errors.join())?))
    })
}

fn read_all(pipe: Option<&mut impl Read>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
