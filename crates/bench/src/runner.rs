//! Runs the selected workloads in rounds, one sample in each place per round, so that a slow minute of the
//! machine affects all places.

use crate::Workload;
use crate::apps::{self, App};
use crate::args::Args;
use crate::before;
use crate::catalogue::{self, Program, Selection};
use crate::compile;
use crate::machine::Machine;
use crate::place::{self, Ground, Place};
use crate::report::{Failure, Figure, Gatherer, Report, SCHEMA, Series, WorkloadReport};
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// No workload takes this long on a working machine.
const LIMIT: Duration = Duration::from_secs(900);

pub(crate) fn run(selection: &Selection, args: &Args) -> Result<Report> {
    let machine = Machine::look();
    let places = places(args)?;
    let scratch = tempfile::Builder::new().prefix("lightpath-bench-").tempdir()?;
    // Applications may run as another user.
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let designs = place::designs();
    let (apps, missing): (Vec<&App>, Vec<&App>) = selection.apps.iter().partition(|app| app.is_present());
    let runs_of = |workload: &&Workload| match workload.program {
        Program::C(_) => places.len(),
        Program::Apps => places.len() * apps.len(),
        Program::InProcess => designs.len(),
    };
    let steps = selection.workloads.iter().map(runs_of).sum::<usize>() as u64 * u64::from(args.samples());
    let progress = ProgressBar::new(steps).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed_precise} (about {eta} left)  {msg}")
            .context("the progress bar's template")?,
    );
    progress.enable_steady_tick(Duration::from_millis(200));
    let mut workloads = Vec::new();
    for workload in &selection.workloads {
        let places_here = if workload.program == Program::InProcess { &designs } else { places.as_slice() };
        let mut report = WorkloadReport::of(workload, places_here);
        let mut measure = |name: &str, job: Job| {
            let bench = Bench { name, job, scratch: scratch.path(), samples: args.samples() as usize };
            let (series, failures) = bench.run(places_here, label_of(workload), &progress);
            report.series.extend(series);
            report.failures.extend(failures);
        };
        let invocations = if args.quick { workload.quick } else { workload.full };
        match workload.program {
            Program::C(program) => {
                let binary = compile::compile(program, scratch.path())?;
                measure(workload.name, Job::C { binary, invocations });
            }
            Program::InProcess => measure(workload.name, Job::InProcess(invocations)),
            Program::Apps => {
                let binary = compile::compile("app", scratch.path())?;
                for app in &apps {
                    let script = app.write(scratch.path())?;
                    let size = invocations[0][0];
                    measure(app.name, Job::App { binary: binary.clone(), app, script, size });
                }
                report.left_out = missing.iter().map(|app| app.label.to_owned()).collect();
            }
        }
        workloads.push(report);
    }
    progress.finish_and_clear();
    let places = places.into_iter().map(|place| place.info).collect();
    Ok(Report { schema: SCHEMA, command: std::env::args().collect(), machine, places, workloads })
}

fn label_of(workload: &Workload) -> fn(&str) -> String {
    match workload.program {
        Program::C(_) => catalogue::label,
        Program::Apps => apps::label,
        Program::InProcess => before::label,
    }
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

/// What is measured.
enum Job {
    /// A program with its arguments, once for each list of them.
    C { binary: PathBuf, invocations: &'static [&'static [&'static str]] },
    /// A process of this command.
    InProcess(&'static [&'static [&'static str]]),
    /// An application's script, started by `binary`.
    App { binary: PathBuf, app: &'static App, script: PathBuf, size: &'static str },
}

/// A job, and how often it is done.
struct Bench<'b> {
    name: &'b str,
    job: Job,
    scratch: &'b Path,
    samples: usize,
}

impl Bench<'_> {
    /// All samples in all places; a place that fails is skipped from then on.
    fn run(
        &self,
        places: &[Place],
        label: fn(&str) -> String,
        progress: &ProgressBar,
    ) -> (Vec<Series>, Vec<Failure>) {
        let mut gatherer = Gatherer::default();
        let mut failures: Vec<Failure> = Vec::new();
        let mut expected = None;
        for sample in 0..self.samples {
            for turn in 0..places.len() {
                let place = &places[(sample + turn) % places.len()];
                let name = &place.info.name;
                progress.set_message(format!("{} on {name}", self.name));
                if failures.iter().all(|failure| failure.place != *name) {
                    match self.sample(place, &mut expected) {
                        Ok(figures) => figures.into_iter().for_each(|figure| gatherer.add(name, figure)),
                        Err(error) => {
                            failures.push(Failure { place: name.clone(), error: format!("{error:#}") });
                        }
                    }
                }
                progress.inc(1);
            }
        }
        let places: Vec<_> = places.iter().map(|place| place.info.name.clone()).collect();
        (gatherer.finish(&places, label), failures)
    }

    /// All the figures of one run in `place`, in a directory of its own. The result of an application must
    /// be `expected`, which the first one sets.
    fn sample(&self, place: &Place, expected: &mut Option<String>) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        match &self.job {
            Job::C { binary, invocations } => {
                for invocation in *invocations {
                    let ground = place.prepare()?;
                    let arguments = self.arguments(invocation, &ground);
                    figures.extend(figures_of(ground.command(binary, &arguments))?);
                }
            }
            Job::InProcess(invocations) => {
                for invocation in *invocations {
                    figures.extend(figures_of(place.in_process(invocation[0])?)?);
                }
            }
            Job::App { binary, app, script, size } => {
                let ground = place.prepare()?;
                let script = script.to_str().context("the scratch directory's name is not UTF-8")?;
                let arguments = self.arguments(&["@dir", app.name, script, "@scratch", size], &ground);
                figures =
                    figures_of(ground.command(binary, &arguments)).with_context(|| app.label.to_owned())?;
                let result = self.scratch.join("result");
                let result = std::fs::read(&result).context("the script left no result")?;
                let result = String::from_utf8_lossy(&result).into_owned();
                let expected = expected.get_or_insert_with(|| result.clone());
                if let Some(difference) = apps::difference(&result, expected) {
                    bail!("{}: another result, {difference}", app.label);
                }
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

impl WorkloadReport {
    fn of(workload: &Workload, places: &[Place]) -> Self {
        Self {
            name: workload.name.to_owned(),
            title: workload.title.to_owned(),
            detail: workload.detail.to_owned(),
            places: places.iter().map(|place| place.info.name.clone()).collect(),
            series: Vec::new(),
            failures: Vec::new(),
            left_out: Vec::new(),
        }
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
        bail!("{status}: {}", last_lines(&errors));
    }
    let figures: Option<Vec<_>> = output.lines().map(Figure::parse).collect();
    figures
        .filter(|figures| !figures.is_empty())
        .with_context(|| format!("cannot read its output: {output:?}"))
}

/// What a workload says at its end: its own message, and before it that of the program that failed.
fn last_lines(errors: &str) -> String {
    let mut lines: Vec<_> = errors.lines().rev().take(2).collect();
    lines.reverse();
    if lines.is_empty() { "no message".to_owned() } else { lines.join("; ") }
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
