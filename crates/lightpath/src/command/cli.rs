//! The command line: help, man page, completions and parser are this one definition.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser, ValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueHint};

use super::mountpoint::MountPoint;
use super::size::Size;

/// A Linux file system in memory shared by ordinary programs.
///
/// `lightpath run -- CMD` starts any program, and all that it starts, with the file calls under
/// its mounts answered inside the process: no kernel crossing, no root, no daemon, no change to the program.
#[derive(Parser)]
#[command(name = "lightpath", version, max_term_width = 100)]
#[command(
    subcommand_required = true,
    arg_required_else_help = false,
    disable_help_subcommand = true,
    propagate_version = true
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The subcommands.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Run a command, and all that it starts, with Lightpath's file system in view.
    #[command(after_help = RUN_AFTER_HELP, override_usage = "lightpath run [OPTIONS] -- CMD [ARG]...")]
    Run(Run),
    /// Run your shell ($SHELL) with Lightpath's file system in view.
    Shell(Shell),
    /// Run a command in a run that is under way, with its file system in view.
    #[command(after_help = EXEC_AFTER_HELP, override_usage = "lightpath exec <RUN> -- CMD [ARG]...")]
    Exec(Join),
    /// Run a command and print its calls on mounts as strace(1) would, which does not see them.
    #[command(after_help = TRACE_AFTER_HELP, override_usage = "lightpath trace [OPTIONS] -- CMD [ARG]...")]
    Trace(Trace),
    /// List the runs under way and their processes.
    #[command(after_help = PS_AFTER_HELP)]
    Ps(Ps),
    /// Say what on this machine works, what does not, and why.
    Doctor,
    /// Check a region file, and mend it.
    #[command(after_help = FSCK_AFTER_HELP)]
    Fsck(Fsck),
    /// Say what a region file holds and how much room it takes.
    Info(Info),
    /// Measure Lightpath against the kernel's file systems.
    Bench(lp_bench::Args),
    /// Find the system calls of ELF objects, as the gate asks for it.
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

const RUN_AFTER_HELP: &str = "\
Exit status: that of CMD; 128+N if signal N ended it; 127 if CMD is not found; 126 if it cannot be run or cannot be \
covered (setuid, or for another machine); 2 if the command line is wrong; 1 if the region cannot be used.

Example: lightpath run -- sh -c 'cp -r /usr/include $LIGHTPATH && du -sh $LIGHTPATH'";

const EXEC_AFTER_HELP: &str = "\
Exit status: as of run; 126 as well if RUN is another user's.

Example: lightpath exec 4711 -- ls -l /light";

const TRACE_AFTER_HELP: &str = "\
The calls of all processes that the command starts are shown, until it ends. Calls that go to the kernel are not: strace \
shows those. Exit status: as of run.

Example: lightpath trace -e openat,close -- ls -l /light";

const PS_AFTER_HELP: &str = "\
A run is named by the pid of its oldest process: that of the command, as long as it runs. Runs of other users show to \
root only, and without what their regions hold.";

const FSCK_AFTER_HELP: &str = "\
Exit status, as of fsck(8): 0 if nothing is wrong; 1 if all that was wrong is mended; 4 if something is still wrong; \
8 if FILE cannot be checked, because it is no region or a run uses it; 16 if the command line is wrong.";

/// `lightpath fsck`.
#[derive(Args)]
pub(crate) struct Fsck {
    /// Mend what is wrong. Without it, FILE stays as it is.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Print what was found as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The region file, which no run may be using.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// `lightpath info`.
#[derive(Args)]
pub(crate) struct Info {
    /// Print it as JSON, sizes in bytes.
    #[arg(long)]
    pub(crate) json: bool,
    /// The region file, which runs may be using.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
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
    #[arg(value_name = "RUN")]
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
    #[command(flatten)]
    pub(crate) options: Options,
    /// The program to run, looked up in PATH, and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// `lightpath ps`.
#[derive(Args)]
pub(crate) struct Ps {
    /// Print it as JSON, sizes in bytes.
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Add site images to the bundle; without it, say what there is.
    #[arg(long)]
    pub(crate) build: bool,
    /// The bundle, if it is not the one in the cache directory.
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,
    /// Programs and libraries.
    #[arg(required = true, value_name = "OBJECT")]
    pub(crate) paths: Vec<PathBuf>,
}

/// What `run`, `shell` and `trace` share.
#[derive(Args, Clone)]
pub(crate) struct Options {
    /// Directory where the file system appears; it need not exist, and is covered if it does. May be repeated, each
    /// with a tree of its own; the first is $LIGHTPATH in the command's environment.
    #[arg(long, value_name = "DIR", default_value = MountPoint::DEFAULT, value_parser = mount_point(), value_hint = ValueHint::DirPath)]
    pub(crate) at: Vec<MountPoint>,
    /// Limit of the file system: bytes, with a unit (512M, 2GiB, 10GB) or a share of the memory. [default: 50%]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Keep the file system in FILE: made if absent, there again in the next run, usable by several runs at once.
    /// Without it the file system ends with the last process of the run.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) region: Option<PathBuf>,
    /// When the command ends, print a table by call to standard error: answered in process, passed to the kernel,
    /// bytes.
    #[arg(long)]
    pub(crate) stats: bool,
    /// What is recorded of calls, as a run record says.
    #[arg(skip)]
    pub(crate) records: u32,
}

fn mount_point() -> ValueParser {
    PathBufValueParser::new().try_map(|path| MountPoint::new(&path)).into()
}

/// A complaint of clap's as one line that says what to do.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let said = match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "say what to do: run, shell, exec, ps, trace, doctor, fsck, info, bench, completions or man"
                .to_owned()
        }
        ErrorKind::MissingRequiredArgument => missing(error),
        _ => {
            let text = error.render().to_string();
            let first = text.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
    };
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue) {
        return format!("{said}; write one of {}", values.join(", "));
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
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(names)) if names.iter().any(|name| name.contains("RUN")) => {
            "no run to join: write lightpath exec RUN -- CMD [ARG]...; lightpath ps shows the runs".to_owned()
        }
        Some(ContextValue::Strings(names)) if names.iter().any(|name| name.contains("CMD")) => {
            "no command to run: write lightpath run [OPTIONS] -- CMD [ARG]...".to_owned()
        }
        Some(ContextValue::Strings(names)) => format!("{} is missing", names.join(" and ")),
        _ => "an argument is missing".to_owned(),
    }
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
