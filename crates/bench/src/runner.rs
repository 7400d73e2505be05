//! Runs the selected workloads in rounds, one sample in each place per round, so that a slow minute of the
//! machine affects all places.

use crate::Workload;
use crate::args::Args;
use crate::before;
use crate::catalogue::{self, Program, Selection};
use crate::compile;
use crate::machine::Machine;
use crate::place::{self, Ground, Place};
use crate::report::{Failure, Figure, Gatherer, Report, SCHEMA, WorkloadReport};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No workload takes this long on a working machine.
const LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn run(selection: &Selection, args: &Args) -> Result<Report> {
    let machine = Machine::look();
    let places = places(args)?;
    let scratch = tempfile::Builder::new().prefix("lightpath-bench-").tempdir()?;
    let samples = args.samples();
    let designs = place::designs();
    let places_of = |workload: &Workload| match workload.program {
        Program::C(_) => places.as_slice(),
        Program::InProcess => designs.as_slice(),
    };
    let runs: usize = selection.0.iter().map(|workload| places_of(workload).len()).sum();
    let steps = runs as u64 * u64::from(samples);
    let progress = ProgressBar::new(steps).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed_precise} (about {eta} left)  {msg}")
            .context("the progress bar's template")?,
    );
    progress.enable_steady_tick(Duration::from_millis(200));
    let mut workloads = Vec::new();
    for workload in &selection.0 {
        let binary = match workload.program {
            Program::C(program) => Some(compile::compile(program, scratch.path())?),
            Program::InProcess => None,
        };
        let bench = Bench { workload, binary, scratch: scratch.path(), args };
        workloads.push(bench.run(places_of(workload), &progress));
    }
    progress.finish_and_clear();
    let places = places.into_iter().map(|place| place.info).collect();
    Ok(Report { schema: SCHEMA, command: std::env::args().collect(), machine, places, workloads })
}

/// The kernel's file systems, then Lightpath. If Lightpath cannot run, that is reported once, and the
/// kernel's figures are still measured.
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

/// One workload and what it needs.
struct Bench<'b> {
    workload: &'b Workload,
    /// Its program; none if it runs in a process of this command.
    binary: Option<PathBuf>,
    scratch: &'b Path,
    args: &'b Args,
}

impl Bench<'_> {
    /// All samples in all places; a place that fails is skipped from then on.
    fn run(&self, places: &[Place], progress: &ProgressBar) -> WorkloadReport {
        let mut gatherer = Gatherer::default();
        let mut failures: Vec<Failure> = Vec::new();
        for sample in 0..self.args.samples() as usize {
            for turn in 0..places.len() {
                let place = &places[(sample + turn) % places.len()];
                let name = &place.info.name;
                progress.set_message(format!("{} on {name}", self.workload.name));
                if failures.iter().all(|failure| failure.place != *name) {
                    match self.sample(place) {
                        Ok(figures) => figures.into_iter().for_each(|figure| gatherer.add(name, figure)),
                        Err(error) => {
                            failures.push(Failure { place: name.clone(), error: format!("{error:#}") });
                        }
                    }
                }
                progress.inc(1);
            }
        }
        let names: Vec<_> = places.iter().map(|place| place.info.name.clone()).collect();
        let label = match self.workload.program {
            Program::C(_) => catalogue::label,
            Program::InProcess => before::label,
        };
        WorkloadReport {
            name: self.workload.name.to_owned(),
            title: self.workload.title.to_owned(),
            detail: self.workload.detail.to_owned(),
            series: gatherer.finish(&names, label),
            places: names,
            failures,
        }
    }

    /// All the figures of one run in `place`, in a directory of its own.
    fn sample(&self, place: &Place) -> Result<Vec<Figure>> {
        let invocations = if self.args.quick { self.workload.quick } else { self.workload.full };
        let mut figures = Vec::new();
        for invocation in invocations {
            match &self.binary {
                Some(binary) => {
                    let ground = place.prepare()?;
                    let arguments = self.arguments(invocation, &ground);
                    figures.extend(figures_of(ground.command(binary, &arguments))?);
                }
                None => figures.extend(figures_of(place.in_process(invocation[0])?)?),
            }
        }
        Ok(figures)
    }

    fn arguments(&self, invocation: &[&str], ground: &Ground) -> Vec<OsString> {
        let argument = |argument: &&str| match *argument {
            "@dir" => ground.dir.clone().into_os_string(),
            "@scratch" => self.scratch.as_os_str().to_owned(),
            other => other.into(),
        };
        invocation.iter().map(argument).collect()
    }
}

fn figures_of(mut command: Command) -> Result<Vec<Figure>> {
    let mut child = command
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
