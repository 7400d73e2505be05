//! `lightpath trace`: the calls of a run that are answered in its processes, as strace(1) would print them.
//!
//! | file | what |
//! |---|---|
//! | `calls.rs` | which calls, and their names |
//! | `plan.rs` | what is asked for |
//! | `spool.rs` | empties the lanes' rings |
//! | `reader.rs` | puts calls in order |
//! | `format.rs` | an entry as a line |
//! | `summary.rs` | the table of `-c` |
//! | `attach.rs` | coming to a run under way, and going |

mod attach;
mod calls;
mod format;
mod names;
mod plan;
mod reader;
mod spool;
mod summary;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use lp_abi::Fd;
use lp_region::process::{CALLS_ALL_TRACED, CALLS_TRACED};

use crate::command::launch::start::prepare;
use crate::command::launch::supervise;
use crate::command::options::mountpoint;
use crate::command::options::pid::pid;
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION, USAGE, reason};
use crate::command::program::caller::check_caller;
use crate::command::run::claim::Claim;
use plan::Plan;

const AFTER_HELP: &str = "\
The calls of all processes that the command starts are shown, until it ends. Calls that go to the kernel \
are shown with --host only, and only those that name a file, a descriptor, memory or a process; those whose \
result the gate does not learn end in '= ?'. strace shows them all.

No call is lost: a program that makes calls faster than they are printed waits once a quarter of the free \
memory is full of them. Calls of processes that have filtered their system calls (seccomp) are not shown. \
Times of -c are those of every 31st call, once a thread has made 64 of a kind.

With -p, processes are stopped for a moment, which takes the rights of ptrace(2), and go on as before when \
the tracer has gone.

Exit status: as of run; 0 with -p.

Example: lightpath trace -e openat,close -- ls -l /light";

/// Options of a run that are refused: those of sessions, and the table that `-c` prints.
const REFUSED: [&str; 6] = ["over", "session", "discard", "apply", "ask", "stats"];

/// `lightpath trace`.
#[derive(Args)]
#[command(mut_args(|arg| if REFUSED.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg }))]
#[command(after_help = AFTER_HELP, override_usage = "lightpath trace [OPTIONS] -- CMD [ARG]...\n       lightpath trace [OPTIONS] -p PID")]
pub(crate) struct Trace {
    /// Show these calls only (open,close), or all but these (!read,write).
    #[arg(short = 'e', value_name = "CALLS")]
    calls: Option<String>,
    /// Write to FILE, not to standard error; each line then starts with the thread's id.
    #[arg(short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Print a table at the end in place of lines: calls, errors and time by call.
    #[arg(short = 'c')]
    summary: bool,
    /// Show the calls on files, memory and processes that go to the kernel too.
    #[arg(long)]
    host: bool,
    /// Trace the run that process PID takes part in, until an interrupt (^C) or the end of the run.
    #[arg(short = 'p', value_name = "PID", value_parser = pid, conflicts_with_all = ["command", "at", "size", "region", "from", "ro"])]
    pid: Option<u32>,
    #[command(flatten)]
    options: Options,
    /// The program to run, looked up in PATH, and its arguments.
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Runs the command, or joins a run under way, and prints the calls on mounts.
pub(crate) fn trace(args: &Trace) -> Result<u8, Failure> {
    let mut options = args.options.clone();
    mountpoint::check_apart(&options.at).map_err(|line| Failure::new(USAGE, line))?;
    if options.stats {
        return Err(Failure::new(USAGE, "--stats cannot be used with trace; -c prints a table"));
    }
    if !options.over.is_empty() {
        let line = "--over cannot be used with trace; trace a copy of the tree with --at";
        return Err(Failure::new(USAGE, line));
    }
    check_caller()?;
    let plan = Plan {
        wanted: args.calls.as_deref().map(calls::parse).transpose()?,
        summary: args.summary,
        host: args.host,
        is_file: args.output.is_some(),
    };
    let output: Box<dyn Write + Send> =
        match &args.output {
            None => Box::new(io::stderr()),
            Some(path) => Box::new(File::create(path).map_err(|e| {
                Failure::new(REGION, format!("cannot make {}: {}", path.display(), reason(&e)))
            })?),
        };
    if let Some(pid) = args.pid {
        return attach::attach(pid, &plan, output);
    }
    options.records = if plan.host { CALLS_ALL_TRACED } else { CALLS_TRACED };
    let (mut launch, claim) = prepare(&options, &args.command, |paths| Claim::open(&options, paths))?;
    let rings = plan.ask(Fd::new(claim.flights()))?;
    let slot = claim.slot()?;
    let ended = supervise::run_beside(&mut launch, &claim, &slot, |child| {
        plan.begin(claim.region(), rings, child as u32, output)
    })?;
    ended.beside.finish()?;
    Ok(ended.end.pass_on())
}
