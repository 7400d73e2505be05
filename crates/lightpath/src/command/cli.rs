//! The command line. Help, man page, completions and parser all derive from this definition.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, FromArgMatches, Parser, Subcommand, ValueHint};

use crate::command::options::pid::pid;
use crate::command::options::run::Options;
use crate::command::session::which::Which;

mod copies;

pub(crate) use copies::{Cat, Cp, Export, Freeze, Ls, Pack, Undo, Unpack};
use copies::{EXPORT_AFTER_HELP, FREEZE_AFTER_HELP, PLACE_AFTER_HELP, UNDO_AFTER_HELP};

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
    #[command(after_help = RUN_AFTER_HELP, override_usage = "lightpath run [OPTIONS] -- CMD [ARG]...")]
    Run(Run),
    /// Run your shell ($SHELL) on Lightpath's file system.
    Shell(Shell),
    /// Say what a session has changed.
    #[command(after_help = DIFF_AFTER_HELP)]
    Diff(Diff),
    /// Write what a session has changed to its directory; once all is written, the session ends.
    #[command(after_help = APPLY_AFTER_HELP)]
    Apply(Apply),
    /// Take back what an apply has written.
    #[command(after_help = UNDO_AFTER_HELP)]
    Undo(Undo),
    /// Write a session's tree, or what it has changed, to a tar archive.
    #[command(after_help = EXPORT_AFTER_HELP)]
    Export(Export),
    /// Print files of a session or of a run that is under way.
    #[command(after_help = PLACE_AFTER_HELP)]
    Cat(Cat),
    /// List directories of a session or of a run that is under way, as ls(1) does.
    #[command(after_help = PLACE_AFTER_HELP)]
    Ls(Ls),
    /// Copy files into or out of a session or a run that is under way, as cp -a does.
    #[command(after_help = PLACE_AFTER_HELP)]
    Cp(Cp),
    /// Forget a session.
    Discard(Discard),
    /// List the sessions.
    Sessions(Sessions),
    /// Run a command in a run that is under way, with its file system in view.
    #[command(after_help = EXEC_AFTER_HELP, override_usage = "lightpath exec <RUN> -- CMD [ARG]...")]
    Exec(Join),
    /// Run a command and print its calls on mounts as strace(1) would, which does not see them.
    #[command(after_help = TRACE_AFTER_HELP, override_usage = "lightpath trace [OPTIONS] -- CMD [ARG]...\n       lightpath trace [OPTIONS] -p PID")]
    Trace(Trace),
    /// List the runs under way and their processes.
    #[command(after_help = PS_AFTER_HELP)]
    Ps(Ps),
    /// Show what the runs under way do: calls, waits, space and files, second by second.
    #[command(after_help = TOP_AFTER_HELP)]
    Top(Top),
    /// Say what on this machine works, what does not, and why.
    Doctor,
    /// Check a region file and repair it.
    #[command(after_help = FSCK_AFTER_HELP)]
    Fsck(Fsck),
    /// Report what a region file contains and how much space it takes.
    Info(Info),
    /// Copy the region of a run or session to a file, for run --from, while programs go on using it.
    #[command(after_help = FREEZE_AFTER_HELP)]
    Freeze(Freeze),
    /// Compress a frozen region.
    Pack(Pack),
    /// Make a frozen region of what pack has written.
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

const RUN_AFTER_HELP: &str = "\
Exit status: that of CMD; 128+N if signal N killed it; 127 if CMD is not found; 126 if it cannot be run or \
cannot be covered (setuid, or built for another machine); 2 for a usage error; 1 if the region cannot be \
used.

Example: lightpath run -- sh -c 'cp -r /usr/include $LIGHTPATH && du -sh $LIGHTPATH'";

const DIFF_AFTER_HELP: &str = "\
Letters: A added, M content or attributes changed, D deleted, R renamed, T another type.";

const APPLY_AFTER_HELP: &str = "\
Nothing is written if the directory has changed where the session has: each such path is a conflict and is \
listed. An apply that was interrupted is finished by the next one. With PATH, directories that a path needs \
are made with it, and a rename of which only one name is chosen is taken as what happens to that name: an \
addition or a deletion.

Exit status: 0 if all was written; 1 if there is a conflict or writing failed, and then the session is \
kept.";

const EXEC_AFTER_HELP: &str = "\
Exit status: as of run; 126 as well if RUN is another user's.

Example: lightpath exec 4711 -- ls -l /light";

const TRACE_AFTER_HELP: &str = "\
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

const PS_AFTER_HELP: &str = "\
A run is named by the pid of its oldest process: that of the command, as long as it runs. Runs of other \
users show to root only, and without what their regions hold.";

const TOP_AFTER_HELP: &str = "\
Keys: Up and Down choose a run, Tab a table; s changes what the runs are sorted by, / filters them by \
command or mount, q ends. Calls are counted in runs that were started with --stats.";

const FSCK_AFTER_HELP: &str = "\
Exit status, as for fsck(8): 0 if there are no errors; 1 if all errors were corrected; 4 if errors are \
left; 8 if FILE cannot be checked because it is not a region or a run is using it; 16 for a usage error.";

/// `lightpath fsck`.
#[derive(Args)]
pub(crate) struct Fsck {
    /// Repair errors. Without it, FILE is not modified.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The region file; no run may be using it.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// `lightpath info`.
#[derive(Args)]
pub(crate) struct Info {
    /// Print JSON, with sizes in bytes.
    #[arg(long)]
    pub(crate) json: bool,
    /// The region file; runs may be using it.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// `lightpath diff`.
#[derive(Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Print a patch that git apply takes.
    #[arg(long, conflicts_with_all = ["stat", "name_status", "json"])]
    pub(crate) patch: bool,
    /// Count the lines added and removed in each file.
    #[arg(long, conflicts_with_all = ["name_status", "json"])]
    pub(crate) stat: bool,
    /// Print a letter and the name: the default.
    #[arg(long, conflicts_with = "json")]
    pub(crate) name_status: bool,
    /// Print it as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only what lies at or below these.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
}

/// `lightpath apply`.
#[derive(Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only say what is in the way; write nothing.
    #[arg(long)]
    pub(crate) check: bool,
    /// Keep in FILE what lightpath undo needs to take it back. FILE is a tar archive of what was there
    /// before.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "check")]
    pub(crate) reverse: Option<PathBuf>,
    /// Only what lies at or below these; the session keeps the rest.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
}

/// `lightpath discard`.
#[derive(Args)]
pub(crate) struct Discard {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// `lightpath sessions`.
#[derive(Args)]
pub(crate) struct Sessions {
    /// Print them as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lightpath run`.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) options: Options,
    /// The program to run, looked up in PATH, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// `lightpath exec`.
#[derive(Args)]
pub(crate) struct Join {
    /// The run: the pid of any of its processes (lightpath ps).
    #[arg(value_name = "RUN", value_parser = pid)]
    pub(crate) run: u32,
    /// The program to run, looked up in PATH, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// `lightpath trace`.
#[derive(Args)]
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

/// `lightpath ps`.
#[derive(Args)]
pub(crate) struct Ps {
    /// Print it as JSON, sizes in bytes.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `lightpath top`.
#[derive(Args)]
pub(crate) struct Top {
    /// Print a line of JSON for each interval: rates per second, sizes in bytes.
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds between two looks.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = delay)]
    pub(crate) delay: f64,
    /// Lines that --json prints; 0 for no end [default: 1].
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = count)]
    pub(crate) count: Option<u64>,
}

/// `lightpath shell`.
#[derive(Args)]
pub(crate) struct Shell {
    #[command(flatten)]
    pub(crate) options: Options,
}

/// `lightpath sites`.
#[derive(Args)]
pub(crate) struct Sites {
    /// Add site images to the bundle; without it, describe the objects.
    #[arg(long)]
    pub(crate) build: bool,
    /// The bundle, if it is not the one in the cache directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
    /// Programs and libraries.
    #[arg(required = true, value_name = "OBJECT")]
    pub(crate) paths: Vec<PathBuf>,
}

/// Reduces an error of clap to one line that says what to do.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let said = match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "say what to do: run, shell, diff, apply, undo, discard, sessions, export, cat, ls, cp, exec, ps, \
             trace, doctor, fsck, info, freeze, pack, unpack, bench, completions or man"
                .to_owned()
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && !values.is_empty()
    {
        return format!("{said}; use one of {}", values.join(", "));
    }
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = meant.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    });
    match meant {
        Some(word) => format!("{said}; did you mean '{word}'? (see lightpath --help)"),
        None => format!("{said} (see lightpath --help)"),
    }
}

fn missing(error: &clap::Error) -> String {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let usage = usage.lines().next().unwrap_or_default();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(usage);
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::InvalidArg) else {
        return format!("an argument is missing: use {usage}");
    };
    match names.as_slice() {
        [name, ..] if name == "<RUN>" => {
            "no run to join: write lightpath exec RUN -- CMD [ARG]...; lightpath ps shows the runs".to_owned()
        }
        names if names.iter().any(|name| name.contains("CMD")) => format!("no command to run: use {usage}"),
        [name] => format!("{name} is missing: use {usage}"),
        names => format!("{} are missing: use {usage}", names.join(" and ")),
    }
}

/// Reads the seconds between two looks.
fn delay(text: &str) -> Result<f64, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or("use seconds, from 0.1 to 3600")
}

/// Reads a count of lines.
fn count(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "use a number, 0 for no end")
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

    #[test]
    fn complaints_are_one_line() {
        for args in [
            &["lightpath"][..],
            &["lightpath", "rum"],
            &["lightpath", "run"],
            &["lightpath", "run", "--"],
            &["lightpath", "exec"],
            &["lightpath", "exec", "1"],
            &["lightpath", "exec", "x", "true"],
            &["lightpath", "run", "--sizes", "1M", "--", "true"],
            &["lightpath", "run", "--size"],
            &["lightpath", "run", "--size", "lots", "--", "true"],
            &["lightpath", "run", "--at", "a", "--", "true"],
            &["lightpath", "run", "--stats=1", "--", "true"],
            &["lightpath", "shell", "x"],
            &["lightpath", "completions", "cmd.exe"],
        ] {
            let Err(error) = Cli::try_parse_from(args) else { panic!("{args:?} parsed") };
            let line = one_line(&error);
            assert!(line.len() > 30 && !line.contains('\n'), "{args:?}: {line}");
        }
    }
}
