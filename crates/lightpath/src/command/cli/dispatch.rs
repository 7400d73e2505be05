//! From the command line to the exit status.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use super::definition::{Cli, Verb, run_alone};
use super::{complaint, manual};
use crate::command::output::failure::{FSCK_USAGE, Failure, USAGE};
use crate::command::output::message::message;
use crate::command::output::print::print;
use crate::command::over;
use crate::command::program::inherited;
use crate::command::verbs::{doctor, exec, freeze, fsck, info, pack, place, ps, run, sites, top, trace};

/// The verbs that start a command in a run.
const STARTING: [&str; 7] = ["run", "shell", "exec", "trace", "cat", "ls", "cp"];

/// Runs the command line and returns the exit status; on success `run` does not return.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.collect();
    // fsck(8) has statuses of its own.
    let usage = if args.get(1).is_some_and(|verb| verb == "fsck") { FSCK_USAGE } else { USAGE };
    let starts = args.get(1).is_some_and(|verb| STARTING.iter().any(|name| verb == name));
    if starts && let Err(failure) = inherited::check_filter() {
        message(&failure);
        return failure.status;
    }
    let verb = match run_alone(&args).map_or_else(|| Cli::try_parse_from(args).map(|cli| cli.verb), Ok) {
        Ok(verb) => verb,
        Err(error) => return report_usage(&error, usage),
    };
    match dispatch(verb) {
        Ok(status) => status,
        Err(failure) => {
            message(&failure);
            failure.status
        }
    }
}

fn dispatch(verb: Verb) -> Result<u8, Failure> {
    match verb {
        Verb::Run(run) => run::run(&run.options, &run.command),
        Verb::Shell(shell) => run::shell(&shell.options),
        Verb::Diff(args) => over::diff::diff(&args),
        Verb::Apply(args) => over::apply::apply(&args),
        Verb::Undo(args) => over::undo::undo(&args),
        Verb::Export(args) => over::export::export(&args),
        Verb::Cat(args) => place::cat(&args),
        Verb::Ls(args) => place::ls(&args),
        Verb::Cp(args) => place::cp(&args),
        Verb::Discard(args) => over::discard::discard(&args),
        Verb::Sessions(args) => over::sessions::sessions(&args),
        Verb::Exec(args) => exec::exec(&args),
        Verb::Ps(args) => ps::ps(&args),
        Verb::Top(args) => top::top(&args),
        Verb::Trace(args) => trace::trace(&args),
        Verb::Doctor => {
            let (text, status) = doctor::doctor();
            print(text.as_bytes()).map(|_| status)
        }
        Verb::Fsck(args) => fsck::fsck(&args),
        Verb::Freeze(args) => freeze::freeze(&args),
        Verb::Pack(args) => pack::pack(&args),
        Verb::Unpack(args) => pack::unpack(&args),
        Verb::Info(args) => info::info(&args),
        Verb::Bench(args) => {
            let ended = lp_bench::main(args).map_err(|e| Failure::new(1, format!("bench: {e:#}")))?;
            // An ExitCode does not expose its number, but can be compared.
            Ok((0..=u8::MAX).find(|status| ExitCode::from(*status) == ended).unwrap_or(1))
        }
        Verb::Sites(arguments) => sites::sites(&arguments),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lightpath", &mut script);
            print(&script)
        }
        Verb::Man => {
            let page = manual::page().map_err(|e| Failure::new(1, e.to_string()))?;
            print(&page)
        }
    }
}

/// Prints help and version as clap does, and any error as one line.
fn report_usage(error: &clap::Error, status: u8) -> u8 {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => 0,
            Err(_) => 1,
        };
    }
    let failure = Failure::new(status, complaint::one_line(error));
    message(&failure);
    failure.status
}
