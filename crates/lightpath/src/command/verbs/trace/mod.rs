//! `lightpath trace`: the calls of a run that are answered in its processes, as strace(1) would print them.
//!
//! | file | what |
//! |---|---|
//! | `spool.rs` | empties the lanes' rings |
//! | `reader.rs` | puts calls in order |
//! | `format.rs` | an entry as a line |
//! | `summary.rs` | the table of `-c` |
//! | `attach.rs` | coming to a run under way, and going |

mod attach;
mod format;
mod names;
mod reader;
mod spool;
mod summary;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};

use lp_abi::Fd;
use lp_abi::gated::CALLS;
use lp_region::Region;
use lp_region::process::{CALLS_ALL_TRACED, CALLS_TRACED};
use lp_region::sync::Ordering::Relaxed;
use lp_region::trace::{Rings, ask, hold};
use syscalls::Sysno;

use std::path::PathBuf;

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::command::launch::start::prepare;
use crate::command::launch::supervise;
use crate::command::options::mountpoint;
use crate::command::options::pid::pid;
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION, USAGE, reason};
use crate::command::program::caller::check_caller;
use crate::command::run::claim::Session;
use reader::Reading;
use spool::Spool;
use summary::Summary;

const AFTER_HELP: &str = "\
The calls of all processes that the command starts are shown, until it ends. Calls that go to the kernel \
are shown with --host only, and only those that name a file, a descriptor, memory or a process; those whose \
result the gate does not learn end in '= ?'. strace shows them all.

No call is lost: a program that makes calls faster than they are printed waits once 256 MiB of them are \
behind. Calls of processes that have filtered their system calls (seccomp) are not shown. Times of -c are \
those of every 31st call, once a thread has made 64 of a kind.

With -p, processes are stopped for a moment, which takes the rights of ptrace(2), and go on as before when \
the tracer has gone.

Exit status: as of run; 0 with -p.

Example: lightpath trace -e openat,close -- ls -l /light";

/// `lightpath trace`.
#[derive(Args)]
#[command(after_help = AFTER_HELP, override_usage = "lightpath trace [OPTIONS] -- CMD [ARG]...\n       lightpath trace [OPTIONS] -p PID")]
pub(crate) struct Trace {
    /// Show these calls only (open,close), or all but these (!read,write).
    #[arg(short = 'e', value_name = "CALLS")]
    pub(crate) calls: Option<String>,
    /// Write to FILE, not to standard error; each line then starts with the thread's id.
    #[arg(short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Print a table at the end in place of lines: calls, errors and time by call.
    #[arg(short = 'c')]
    pub(crate) summary: bool,
    /// Show the calls on files, memory and processes that go to the kernel too.
    #[arg(long)]
    pub(crate) host: bool,
    /// Trace the run that process PID takes part in, until an interrupt (^C) or the end of the run.
    #[arg(short = 'p', value_name = "PID", value_parser = pid, conflicts_with_all = ["command", "at", "size", "region", "from", "ro"])]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) options: Options,
    /// The program to run, looked up in PATH, and its arguments.
    #[arg(required_unless_present = "pid", trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
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
        wanted: args.calls.as_deref().map(parse_calls).transpose()?,
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
    let (mut launch, session) = prepare(&options, &args.command, |paths| Session::open(&options, paths))?;
    let rings = plan.ask(Fd::new(session.flights()))?;
    let slot = session.claim()?;
    let ended = supervise::run_beside(&mut launch, &session, &slot, |child| {
        plan.begin(session.region(), rings, child as u32, output)
    })?;
    ended.beside.finish()?;
    Ok(ended.end.pass_on())
}

/// What is asked for.
struct Plan {
    /// A bit for each call; all without.
    wanted: Option<[u64; CALLS / 64]>,
    /// A table at the end.
    summary: bool,
    /// The kernel's calls too.
    host: bool,
    /// Whether the output is a file.
    is_file: bool,
}

impl Plan {
    /// Says in the rings behind `fd` what is to be recorded.
    fn ask(&self, fd: Fd) -> Result<Rings, Failure> {
        let fail = |e: lp_abi::Errno| {
            let error = io::Error::from_raw_os_error(e.number());
            Failure::new(REGION, format!("cannot map the trace: {}", reason(&error)))
        };
        // SAFETY: whoever made the file made it as long as the rings and sealed its length.
        let rings = unsafe { Rings::map(fd) }.map_err(fail)?;
        hold(fd).map_err(fail)?;
        let front = rings.front();
        // Relaxed: nobody is told of the tracer before this is done.
        front.host.store(u32::from(self.host), Relaxed);
        let what = if self.summary { ask::SUM } else { ask::ENTRY };
        let wanted = self.wanted.unwrap_or([u64::MAX; CALLS / 64]);
        rings.begin_to_read(what, |number| wanted[number / 64] >> (number % 64) & 1 != 0);
        Ok(rings)
    }

    /// Begins to read; lines of thread `first` need no id.
    fn begin<W: Write + Send + 'static>(
        &self,
        region: Region<'static>,
        rings: Rings,
        first: u32,
        output: W,
    ) -> Beside<W> {
        if self.summary {
            return Beside::Sums(Summary::new(region, rings, output));
        }
        let lines = format::Lines::new(output, self.is_file, first);
        Beside::Calls(Reading::start(Spool::new(region, rings), lines))
    }
}

/// What is done while the command runs, and at its end.
enum Beside<W> {
    Calls(Reading),
    Sums(Summary<W>),
}

impl<W: Write> Beside<W> {
    fn finish(self) -> Result<(), Failure> {
        let told = match self {
            Beside::Calls(reading) => reading.finish(),
            Beside::Sums(summary) => summary.finish(),
        };
        told.map_err(|e| Failure::new(REGION, format!("writing the trace: {}", reason(&e))))
    }
}

/// A bit for each call of a list such as `open,close`; `!` in front means all others.
fn parse_calls(list: &str) -> Result<[u64; CALLS / 64], Failure> {
    let list = list.strip_prefix("trace=").unwrap_or(list);
    let (list, others) = match list.strip_prefix('!') {
        Some(list) => (list, u64::MAX),
        None => (list, 0),
    };
    let mut bits = [others; CALLS / 64];
    for name in list.split(',') {
        let number = name.parse::<Sysno>().map(|call| call.id() as usize).ok().filter(|nr| *nr < CALLS);
        let Some(number) = number else {
            return Err(Failure::new(
                USAGE,
                format!("'{name}' is no system call; write -e open,close or -e '!read'"),
            ));
        };
        bits[number / 64] ^= 1 << (number % 64);
    }
    Ok(bits)
}

/// The name of a call.
fn name(number: u32) -> Cow<'static, str> {
    match Sysno::new(number as usize) {
        Some(call) => Cow::Borrowed(call.name()),
        None => Cow::Owned(format!("syscall_{number:#x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_chosen_by_name() {
        assert_eq!(parse_calls("read,write").unwrap()[0], 3);
        assert_eq!(parse_calls("trace=!read").unwrap()[0], !1);
        assert!(parse_calls("reed").unwrap_err().to_string().contains("'reed' is no system call"));
    }
}
