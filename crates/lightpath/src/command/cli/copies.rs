//! Arguments of the subcommands that copy out of and into sessions, runs and regions.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::command::session::which::Which;

pub(super) const FREEZE_AFTER_HELP: &str = "\
The copy is consistent: programs wait before their next change until it is made. What they store through \
shared mappings is not held.

Example: lightpath freeze 4711 base.region && lightpath run --from base.region -- make check";

pub(super) const EXPORT_AFTER_HELP: &str = "\
Owners, permissions, times, extended attributes and hard links are kept. A layer has a file .wh.NAME for \
each name that is gone, as the OCI image format does.";

pub(super) const PLACE_AFTER_HELP: &str = "\
A PLACE is SESSION:PATH or RUN:PATH, where a RUN is the pid of one of its processes; :PATH is in the \
session of the current directory. A relative PATH starts at the session's directory, of several at the \
nearest directory above all, or at the run's first mount. A name with a slash before the colon is a file of \
the host.

Example: lightpath cp 4711:out/result /tmp";

pub(super) const UNDO_AFTER_HELP: &str = "\
Nothing is written if something that apply wrote has changed since: each such path is a conflict and is \
listed. An undo that was interrupted is finished by the next one. FILE is kept.

Exit status: 0 if all is as it was; 1 if there is a conflict or writing failed.";

/// `lightpath undo`.
#[derive(Args)]
pub(crate) struct Undo {
    /// Only say what is in the way; write nothing.
    #[arg(long)]
    pub(crate) check: bool,
    /// What apply --reverse has written.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// `lightpath freeze`.
#[derive(Args)]
pub(crate) struct Freeze {
    /// The pid of a process of a run, the name of a session, or, with a slash, a region file.
    #[arg(value_name = "RUN|SESSION|./FILE")]
    pub(crate) what: String,
    /// The file to make.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// `lightpath pack`.
#[derive(Args)]
pub(crate) struct Pack {
    /// What lightpath freeze has made.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The file to make: frames of zstd(1), with a table to seek by.
    #[arg(value_name = "PACKED", value_hint = ValueHint::FilePath)]
    pub(crate) packed: PathBuf,
}

/// `lightpath unpack`.
#[derive(Args)]
pub(crate) struct Unpack {
    /// What lightpath pack has made.
    #[arg(value_name = "PACKED", value_hint = ValueHint::FilePath)]
    pub(crate) packed: PathBuf,
    /// The file to make.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// `lightpath export`.
#[derive(Args)]
#[group(id = "form", required = true, multiple = false, args = ["tar", "oci"])]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Write the whole tree, as the session shows it, to FILE.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tar: Option<PathBuf>,
    /// Write what has changed to FILE, as a layer of an OCI image.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) oci: Option<PathBuf>,
}

/// `lightpath cat`.
#[derive(Args)]
pub(crate) struct Cat {
    /// The files.
    #[arg(required = true, value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,
}

/// `lightpath ls`.
#[derive(Args)]
pub(crate) struct Ls {
    /// With permissions, owners, sizes and times.
    #[arg(short = 'l')]
    pub(crate) long: bool,
    /// With names that start with a dot.
    #[arg(short = 'a')]
    pub(crate) all: bool,
    /// The directories or files.
    #[arg(required = true, value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,
}

/// `lightpath cp`.
#[derive(Args)]
pub(crate) struct Cp {
    /// What to copy, and where to; at least one of them in the session or run.
    #[arg(required = true, num_args = 2.., value_name = "PLACE|FILE")]
    pub(crate) places: Vec<OsString>,
}
