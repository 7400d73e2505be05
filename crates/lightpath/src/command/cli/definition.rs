//! The command line. Help, man page, completions and parser all derive from this definition.

use std::ffi::OsString;

use clap::{Args, FromArgMatches, Parser, Subcommand};

use crate::command::over::apply::Apply;
use crate::command::over::diff::Diff;
use crate::command::over::discard::Discard;
use crate::command::over::export::Export;
use crate::command::over::sessions::Sessions;
use crate::command::over::undo::Undo;
use crate::command::verbs::exec::Exec;
use crate::command::verbs::freeze::Freeze;
use crate::command::verbs::fsck::Fsck;
use crate::command::verbs::info::Info;
use crate::command::verbs::pack::{Pack, Unpack};
use crate::command::verbs::place::{Cat, Cp, Ls};
use crate::command::verbs::ps::Ps;
use crate::command::verbs::run::{Run, Shell};
use crate::command::verbs::sites::Sites;
use crate::command::verbs::top::Top;
use crate::command::verbs::trace::Trace;

/// A Linux file system in memory shared by ordinary programs.
///
/// `lightpath run -- CMD` starts any program, and answers the file calls that it and its children make under
/// a mount inside the process: no kernel crossing, no root, no daemon, no change to the program.
#[derive(Parser)]
#[command(name = "lightpath", version, max_term_width = 100)]
#[command(
    subcommand_required = true,
    arg_required_else_help = false,
    disable_help_subcommand = true,
    propagate_version = true
)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run a command and its children on Lightpath's file system.
    Run(Run),
    /// Run your shell ($SHELL) on Lightpath's file system.
    Shell(Shell),
    /// Show what a session has changed.
    Diff(Diff),
    /// Write what a session has changed to its directory; once all is written, the session ends.
    Apply(Apply),
    /// Undo an apply.
    Undo(Undo),
    /// Write a session's tree, or what it has changed, to a tar archive.
    Export(Export),
    /// Print files of a session or of a run that is under way.
    Cat(Cat),
    /// List directories of a session or of a run that is under way, as ls(1) does.
    Ls(Ls),
    /// Copy files into or out of a session or a run that is under way, as cp -a does.
    Cp(Cp),
    /// Forget a session, or what it has changed at some paths.
    Discard(Discard),
    /// List the sessions.
    Sessions(Sessions),
    /// Run a command in a run that is under way, with its file system in view.
    Exec(Exec),
    /// Print the calls on mounts of a command in the format of strace(1), which does not see them.
    Trace(Trace),
    /// List the runs under way and their processes.
    Ps(Ps),
    /// Show what the runs under way do: calls, waits, space and files, second by second.
    Top(Top),
    /// Report what works on this machine, what does not, and why.
    Doctor,
    /// Check a region file and repair it.
    Fsck(Fsck),
    /// Report what a region file contains and how much space it takes.
    Info(Info),
    /// Copy the region of a run or session to a file, for run --from, while programs go on using it.
    Freeze(Freeze),
    /// Compress a frozen region.
    Pack(Pack),
    /// Unpack a frozen region that pack has written.
    Unpack(Unpack),
    /// Measure Lightpath against the kernel's file systems.
    Bench(lp_bench::Args),
    /// Find the system calls in ELF objects, on behalf of the gate.
    #[command(hide = true)]
    Sites(Sites),
    /// Print a completion script for a shell.
    Completions {
        /// The shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Print the manual page (read it with: lightpath man | man -l -).
    Man,
}

/// The command line of `run`, if it is one without a fault. The definitions of all other subcommands take
/// longer to make than the rest of the parser; whatever is wrong, or asks for help, is theirs to answer.
pub(crate) fn run_alone(args: &[OsString]) -> Option<Verb> {
    let (verb, _) = args.split_at_checked(2)?;
    if verb[1] != "run" {
        return None;
    }
    let command = Run::augment_args(clap::Command::new("run")).disable_help_flag(true);
    let matches = command.try_get_matches_from(&args[1..]).ok()?;
    Run::from_arg_matches(&matches).ok().map(Verb::Run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_after_the_command_are_its_own() {
        let cli = Cli::try_parse_from(["lightpath", "run", "--stats", "ls", "-l", "--size", "--", "x"]);
        let Ok(Cli { verb: Verb::Run(run) }) = cli else { panic!("not parsed as run") };
        assert_eq!(run.command, ["ls", "-l", "--size", "--", "x"]);
        assert!(run.options.stats && run.options.size.is_none());
    }

    #[test]
    fn run_is_parsed_alone_as_among_all_subcommands() {
        for line in
            ["run ls", "run --ro --size 1M -- ls -h --help -V", "run --over . --over /etc --discard x --at"]
        {
            let args: Vec<OsString> =
                ["lightpath"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            let (Some(Verb::Run(alone)), Ok(Cli { verb: Verb::Run(run) })) =
                (run_alone(&args), Cli::try_parse_from(&args))
            else {
                panic!("{line}: not parsed as run")
            };
            assert_eq!(alone.command, run.command, "{line}");
            assert_eq!(alone.options.over, run.options.over, "{line}");
            let rest = |run: &Run| {
                (run.options.ro, run.options.discard, run.options.size.map(|size| size.bytes(1 << 30)))
            };
            assert_eq!(rest(&alone), rest(&run), "{line}");
        }
        for line in ["run", "run --help", "run -h x", "run --version", "run --sizes 1M x", "shell", "ps run"]
        {
            let args: Vec<OsString> =
                ["lightpath"].into_iter().chain(line.split(' ')).map(Into::into).collect();
            assert!(run_alone(&args).is_none(), "{line}");
        }
    }
}
