//! `lightpath cat`, `ls` and `cp`: the programs of these names, run where a session or a run is in view.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;

use super::exec::{Exec, exec};
use crate::command::launch::start::{as_it_ended, start};
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION, USAGE};
use crate::command::over::run::begin;
use crate::command::program::caller::check_caller;
use crate::command::run::join::member;
use crate::command::session::kept::Kept;
use crate::command::session::open::points;

const AFTER_HELP: &str = "\
A PLACE is SESSION:PATH or RUN:PATH, where a RUN is the pid of one of its processes; :PATH is in the \
session of the current directory. A relative PATH starts at the session's directory, of several at the \
nearest directory above all, or at the run's first mount. A name with a slash before the colon is a file of \
the host.

Example: lightpath cp 4711:out/result /tmp";

/// `lightpath cat`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cat {
    /// The files.
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
}

/// `lightpath ls`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ls {
    /// With permissions, owners, sizes and times.
    #[arg(short = 'l')]
    long: bool,
    /// With names that start with a dot.
    #[arg(short = 'a')]
    all: bool,
    /// The directories or files.
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
}

/// `lightpath cp`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cp {
    /// What to copy, and where to; at least one of them in the session or run.
    #[arg(required = true, num_args = 2.., value_name = "PLACE|FILE")]
    places: Vec<OsString>,
}

/// An argument.
#[derive(PartialEq, Eq, Debug)]
enum Place<'a> {
    /// A path in a session or run.
    In(&'a str, &'a Path),
    /// A path of the host.
    Host(&'a Path),
}

impl<'a> Place<'a> {
    fn of(argument: &'a OsStr) -> Result<Self, Failure> {
        let bytes = argument.as_bytes();
        let end = bytes.iter().position(|byte| matches!(byte, b':' | b'/'));
        match end.filter(|end| bytes[*end] == b':') {
            Some(end) => {
                let name = std::str::from_utf8(&bytes[..end]).map_err(|_| {
                    Failure::new(USAGE, format!("{}: no session has such a name", argument.display()))
                })?;
                Ok(Place::In(name, Path::new(OsStr::from_bytes(&bytes[end + 1..]))))
            }
            None => Ok(Place::Host(Path::new(argument))),
        }
    }
}

/// `lightpath cat`.
pub(crate) fn cat(args: &Cat) -> Result<u8, Failure> {
    become_program(&["cat"], &args.places, false)
}

/// `lightpath ls`.
pub(crate) fn ls(args: &Ls) -> Result<u8, Failure> {
    let options = match (args.long, args.all) {
        (true, true) => &["ls", "-l", "-a"][..],
        (true, false) => &["ls", "-l"],
        (false, true) => &["ls", "-a"],
        (false, false) => &["ls"],
    };
    become_program(options, &args.places, false)
}

/// `lightpath cp`.
pub(crate) fn cp(args: &Cp) -> Result<u8, Failure> {
    become_program(&["cp", "-a"], &args.places, true)
}

/// Becomes a program with the places as its arguments; `host` allows files of the host among them.
fn become_program(program: &[&str], arguments: &[OsString], host: bool) -> Result<u8, Failure> {
    let places = arguments.iter().map(|argument| Place::of(argument)).collect::<Result<Vec<_>, _>>()?;
    let mut names = places.iter().filter_map(|place| match place {
        Place::In(name, _) => Some(*name),
        Place::Host(_) => None,
    });
    let name = names.next().ok_or_else(|| {
        Failure::new(USAGE, "say where: SESSION:PATH, RUN:PATH, or :PATH for the session of this directory")
    })?;
    if let Some(other) = names.find(|other| *other != name) {
        let line = format!("{name}: and {other}: are two places; copy to the host in between");
        return Err(Failure::new(USAGE, line));
    }
    let view = View::of(name)?;
    let mut command: Vec<OsString> = program.iter().map(OsString::from).collect();
    command.push("--".into());
    for place in &places {
        command.push(match place {
            Place::In(_, path) => view.above().join(path).into(),
            Place::Host(path) if host => view.outside(path)?.into(),
            Place::Host(path) => {
                return Err(Failure::new(USAGE, format!("{}: say {name}:PATH", path.display())));
            }
        });
    }
    view.start(command)
}

/// What a name stands for.
struct View {
    /// Where it is seen.
    mounts: Vec<PathBuf>,
    what: What,
}

enum What {
    Run(u32),
    Session(Kept),
}

impl View {
    fn of(name: &str) -> Result<View, Failure> {
        if let Ok(pid) = name.parse() {
            let (member, region) = member(pid)?;
            return Ok(View { mounts: member.mounts(region), what: What::Run(pid) });
        }
        let kept = Kept::find(Some(name).filter(|name| !name.is_empty()))?;
        Ok(View { mounts: kept.at.all().to_vec(), what: What::Session(kept) })
    }

    /// What a relative path starts at.
    fn above(&self) -> &Path {
        match &self.what {
            What::Session(kept) => kept.at.above(),
            What::Run(_) => &self.mounts[0],
        }
    }

    /// A path of the host that can be seen beside the mounts.
    fn outside(&self, path: &Path) -> Result<PathBuf, Failure> {
        let fail = |line: String| Failure::new(USAGE, format!("{}: {line}", path.display()));
        let absolute = std::path::absolute(path).map_err(|e| fail(e.to_string()))?;
        // The target of a copy need not exist.
        let above = absolute.parent().unwrap_or(Path::new("/"));
        let found = absolute.canonicalize().or_else(|_| above.canonicalize()).unwrap_or(absolute.clone());
        match self.mounts.iter().find(|mount| found.starts_with(mount)) {
            Some(mount) => Err(fail(format!(
                "the host's {} is hidden there: name another directory, or use lightpath apply",
                mount.display()
            ))),
            None => Ok(absolute),
        }
    }

    fn start(self, command: Vec<OsString>) -> Result<u8, Failure> {
        let kept = match self.what {
            What::Run(run) => return exec(&Exec { run, command }),
            What::Session(kept) => kept,
        };
        if !kept.file().exists() {
            return Err(Failure::new(REGION, format!("session {} has no region", kept.shown())));
        }
        let options = Options {
            at: points(&kept.at),
            region: Some(kept.file()),
            over: kept.over.all().to_vec(),
            ..Options::default()
        };
        check_caller()?;
        start(&options, &command, |paths| begin(Some(&kept), &options, paths), as_it_ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_before_the_colon_makes_it_the_hosts() {
        let of = |text: &'static str| Place::of(OsStr::new(text)).unwrap();
        assert_eq!(of("s:a/b"), Place::In("s", Path::new("a/b")));
        assert_eq!(of(":a:b"), Place::In("", Path::new("a:b")));
        assert_eq!(of("./s:a"), Place::Host(Path::new("./s:a")));
        assert_eq!(of("a"), Place::Host(Path::new("a")));
    }
}
