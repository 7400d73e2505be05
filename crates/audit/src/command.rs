//! The command line of `lp-audit`.

use crate::budget::{Budget, Budgets};
use crate::commute::{Actors, Findings, Report};
use crate::library;
use crate::library::Descriptors;
use crate::matrix::Matrix;
use crate::probe::{Audit, Ground, Probe};
use crate::symbols::Symbols;
use anyhow::{Context, Result, bail};
use clap::Parser;
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use iced_x86::{Formatter, GasFormatter};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Count what file calls execute: instructions, serialising instructions, system calls, cache lines
#[derive(Debug, Parser)]
#[command(name = "lp-audit", version)]
pub struct Command {
    #[command(subcommand)]
    action: Action,

    /// The `lightpath` command (default: beside this one)
    #[arg(long, global = true, value_name = "PATH")]
    lightpath: Option<PathBuf>,

    /// Audit the kernel's own calls in DIR, without Lightpath
    #[arg(long, global = true, value_name = "DIR", conflicts_with = "lightpath")]
    dir: Option<PathBuf>,

    /// Audit the library door, without the gate
    #[arg(long, global = true, conflicts_with_all = ["lightpath", "dir"])]
    library: bool,

    /// Make the calls in a process with a second thread, which shares its descriptor table
    #[arg(long, global = true)]
    threads: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print a table of counts
    Show {
        /// Calls (default: all)
        #[arg(value_name = "CALL")]
        calls: Vec<String>,
    },
    /// Compare the calls with their budgets; exit status 1 if one is exceeded
    Check,
    /// Print each instruction that a call executes
    Trace {
        #[arg(value_name = "CALL")]
        call: String,
    },
    /// Print which pairs of commuting calls touch a cache line that one of them writes
    Matrix {
        /// Calls (default: all)
        #[arg(value_name = "CALL")]
        calls: Vec<String>,
    },
    /// Print which of all pairs of commuting calls touch a cache line that one of them writes
    Commute {
        /// Take every Nth call only
        #[arg(long, value_name = "N", default_value_t = 1)]
        stride: usize,
        /// Write the page and its heat maps to DIR, not to standard output
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Write the pairs that conflict to FILE, with the fields on whose lines they do
        #[arg(long, value_name = "FILE")]
        list: Option<PathBuf>,
    },
    /// Act as the audited program of the library door
    #[command(hide = true)]
    Perform {
        repetitions: usize,
        #[arg(num_args = 1..=2)]
        calls: Vec<String>,
    },
}

/// Executes `command`, printing to standard output.
///
/// # Errors
/// If a call cannot be audited.
pub fn run(command: &Command) -> Result<ExitCode> {
    if let Action::Perform { repetitions, calls } = &command.action {
        library::perform(*repetitions, calls, command.descriptors())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Action::Commute { stride, out, list } = &command.action {
        return commute(*stride, out.as_deref(), list.as_deref());
    }
    let ground = command.ground()?;
    let known = |names: &[String]| known(&ground, names);
    let probe = Probe::new(ground.clone(), command.descriptors())?;
    let mut out = std::io::stdout().lock();
    match &command.action {
        Action::Show { calls } => writeln!(out, "{}", counts(&probe, &known(calls)?)?)?,
        Action::Check => return check(&probe, Budgets::load()?.of(&ground, command.descriptors()), &mut out),
        Action::Trace { call } => {
            let call = known(std::slice::from_ref(call))?;
            write!(out, "{}", listing(&probe.audit(call[0])?))?;
        }
        Action::Matrix { calls } => write!(out, "{}", conflicts(&probe, &known(calls)?)?)?,
        Action::Perform { .. } | Action::Commute { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// The page's first paragraph.
const COMMUTE: &str = include_str!("commute/page.md");

fn commute(stride: usize, out: Option<&Path>, list: Option<&Path>) -> Result<ExitCode> {
    if let Some(dir) = out {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let find = |actors| Findings::of(actors, stride);
    let report = Report(vec![find(Actors::Processes)?, find(Actors::Threads)?]);
    if let Some(list) = list {
        std::fs::write(list, report.list()).with_context(|| format!("cannot write {}", list.display()))?;
    }
    let maps = ["processes.svg", "threads.svg"];
    let page = format!("{COMMUTE}{}", report.page(&maps.map(str::to_owned)));
    match out {
        None => write!(std::io::stdout().lock(), "{page}")?,
        Some(dir) => {
            let write = |name: &str, text: &str| {
                std::fs::write(dir.join(name), text)
                    .with_context(|| format!("cannot write {name} in {}", dir.display()))
            };
            write("README.md", &page)?;
            for (name, findings) in maps.iter().zip(&report.0) {
                write(name, &findings.heat_map())?;
            }
        }
    }
    let unexplained = report.unexplained();
    if !unexplained.is_empty() {
        bail!("conflicts without a reason on {}", Vec::from_iter(unexplained).join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

impl Command {
    fn descriptors(&self) -> Descriptors {
        if self.threads { Descriptors::Shared } else { Descriptors::Own }
    }

    fn ground(&self) -> Result<Ground> {
        if self.library {
            return Ok(Ground::Library(std::env::current_exe()?));
        }
        if let Some(dir) = &self.dir {
            return Ok(Ground::Directory(dir.clone()));
        }
        let launcher = match &self.lightpath {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("lightpath"),
        };
        if !launcher.exists() {
            bail!("there is no {}; say where it is with --lightpath", launcher.display());
        }
        Ok(Ground::Lightpath(launcher))
    }
}

/// Checks that `names` are calls; returns all calls if there are none.
fn known(ground: &Ground, names: &[String]) -> Result<Vec<&'static str>> {
    let calls = ground.calls();
    if names.is_empty() {
        return Ok(calls);
    }
    let find = |name: &String| calls.iter().find(|call| **call == *name).copied();
    names
        .iter()
        .map(|name| find(name).with_context(|| format!("no call '{name}'; there are: {}", calls.join(" "))))
        .collect()
}

fn counts(probe: &Probe, calls: &[&str]) -> Result<Table> {
    let mut table = bare_table();
    table.set_header([
        "call",
        "instructions",
        "serialising",
        "syscalls",
        "lines read",
        "lines written",
        "by object",
    ]);
    for call in calls {
        let audit = probe.audit(call)?;
        let count = &audit.count;
        let objects: Vec<_> = count.instructions.iter().map(|(object, n)| format!("{object} {n}")).collect();
        table.add_row([
            (*call).to_owned(),
            total(&audit),
            count.serialising.len().to_string(),
            count.syscalls.len().to_string(),
            count.lines_read.len().to_string(),
            count.lines_written.len().to_string(),
            objects.join(", "),
        ]);
    }
    Ok(table)
}

fn total(audit: &Audit) -> String {
    let most = audit.totals.iter().max().copied().unwrap_or(0);
    match audit.count.total() {
        least if least == most => least.to_string(),
        least => format!("{least}..{most}"),
    }
}

fn check(probe: &Probe, budgets: &[Budget], out: &mut impl Write) -> Result<ExitCode> {
    let mut table = bare_table();
    table.set_header(["call", "instructions", "allowed", "serialising", "syscalls", ""]);
    let mut complaints = Vec::new();
    for budget in budgets {
        let audit = probe.audit(&budget.call)?;
        let excesses = budget.excesses(&audit);
        table.add_row(check_row(budget, &audit, if excesses.is_empty() { "" } else { "EXCEEDED" }));
        complaints.extend(excesses.into_iter().map(|excess| format!("{}: {excess}", budget.call)));
    }
    writeln!(out, "{table}")?;
    for complaint in &complaints {
        writeln!(out, "{complaint}")?;
    }
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_row(budget: &Budget, audit: &Audit, verdict: &str) -> [String; 6] {
    [
        budget.call.clone(),
        total(audit),
        budget.instructions.to_string(),
        format!("{} of {}", audit.count.serialising.len(), budget.serialising),
        format!("{} of {}", audit.count.syscalls.len(), budget.syscalls),
        verdict.to_owned(),
    ]
}

/// The executed instructions in order, with a heading whenever the function changes.
fn listing(audit: &Audit) -> String {
    let mut formatter = GasFormatter::new();
    let mut symbols = Symbols::default();
    let mut text = String::new();
    let mut heading = String::new();
    for (index, step) in audit.count.steps.iter().enumerate() {
        let name = step.origin.as_ref().and_then(|(file, offset)| symbols.name(file, *offset));
        let function = name.as_deref().and_then(|name| name.split('+').next()).unwrap_or("?");
        let now = format!("{} {function}", step.object);
        if now != heading {
            text += &format!("{now}:\n");
            heading = now;
        }
        let mut line = String::new();
        formatter.format(&step.instruction, &mut line);
        let place = step.origin.as_ref().map_or(step.instruction.ip(), |(_, offset)| *offset);
        text += &format!("{:5}  {place:12x}  {line}\n", index + 1);
    }
    text
}

fn conflicts(probe: &Probe, calls: &[&str]) -> Result<String> {
    let matrix = Matrix::of(probe, calls, |_| {})?;
    let mut table = bare_table();
    table.set_header([""].into_iter().chain(calls.iter().copied()));
    for first in calls {
        let cell = |second: &&str| match matrix.conflicts(first, second) {
            Some(0) => "-".to_owned(),
            Some(lines) => lines.to_string(),
            None => "?".to_owned(),
        };
        table.add_row([(*first).to_owned()].into_iter().chain(calls.iter().map(cell)));
    }
    let share = matrix.conflict_free() * 100.0;
    let mut text = format!(
        "{table}\nlines that two processes share and one writes; '-' is none\n{share:.1} % of {} pairs are free of conflict\n",
        matrix.pairs.len()
    );
    for pair in matrix.pairs.iter().filter(|pair| !pair.lines.is_empty()) {
        let lines: Vec<_> = pair.lines.iter().map(|line| format!("{:#x}", line * 64)).collect();
        text += &format!("{} and {}: {}\n", pair.first, pair.second, lines.join(" "));
    }
    Ok(text)
}

fn bare_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
