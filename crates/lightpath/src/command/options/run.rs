//! [`Options`]: what a run is to be like.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser, ValueParser};
use clap::{Args, ValueHint};

use super::mountpoint::MountPoint;
use super::size::Size;

/// Options of `run`, `shell` and `trace`.
#[derive(Args, Clone, Default)]
pub(crate) struct Options {
    /// Mount point of the file system. DIR need not exist; an existing directory is hidden. May be repeated
    /// to mount several trees; $LIGHTPATH in the command's environment names the first.
    #[arg(long, value_name = "DIR", default_value = MountPoint::DEFAULT, value_parser = mount_point(), value_hint = ValueHint::DirPath)]
    pub(crate) at: Vec<MountPoint>,
    /// Run over a tree: what the command changes there is kept in a session, and the tree is not written to.
    /// A directory is seen at its own path; what an archive (tar, tar.gz, tar.zst, zip) or a frozen region
    /// holds, at --at. May be repeated for several directories, which are one session. See lightpath diff,
    /// apply, export and discard.
    #[arg(long, value_name = "DIR|FILE", value_hint = ValueHint::AnyPath, conflicts_with_all = ["region"])]
    pub(crate) over: Vec<PathBuf>,
    /// Name of the session; without it the session is named after DIR or FILE.
    #[arg(long, value_name = "NAME", requires = "over")]
    pub(crate) session: Option<String>,
    /// Keep nothing of what the command changes.
    #[arg(long, requires = "over", conflicts_with_all = ["session", "apply"])]
    pub(crate) discard: bool,
    /// When the command has ended with status 0, write what it changed to DIR. If processes that it has
    /// started live on, nothing is written and the session is kept.
    #[arg(long, requires = "over")]
    pub(crate) apply: bool,
    /// When the command has ended, show what it changed as lightpath diff --stat does, and ask whether to
    /// apply, keep or discard it.
    #[arg(long, requires = "over", conflicts_with_all = ["apply", "discard"])]
    pub(crate) ask: bool,
    /// Mount read-only, for this run.
    #[arg(long)]
    pub(crate) ro: bool,
    /// Limit of the file system: bytes, with a unit (512M, 2GiB, 10GB) or a share of the memory. [default:
    /// 50%]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Keep the file system in FILE, which is created if absent. It persists across runs, and several runs
    /// can use it at once. Without it the file system disappears with the last process of the run.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) region: Option<PathBuf>,
    /// Start from a copy of FILE, which lightpath freeze has made; FILE is not changed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["region", "over", "size"])]
    pub(crate) from: Option<PathBuf>,
    /// When the command ends, print a table to standard error: for each call, how many were answered in the
    /// process, how many went to the kernel, and how many bytes.
    #[arg(long)]
    pub(crate) stats: bool,
    /// A directory that is removed when the command has ended.
    #[arg(skip)]
    pub(crate) scratch: Option<PathBuf>,
    /// Whether the command joins a run, whose mounts its working directory may be in.
    #[arg(skip)]
    pub(crate) joins: bool,
    /// Whose file the region is in.
    #[arg(skip)]
    pub(crate) owner: RegionOwner,
    /// What is recorded of calls, as a run record says.
    #[arg(skip)]
    pub(crate) records: u32,
}

/// Whose file a region is in.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RegionOwner {
    /// The user has named it.
    #[default]
    User,
    /// It is a session's, in the session's own directory.
    Session,
}

fn mount_point() -> ValueParser {
    PathBufValueParser::new().try_map(|path| MountPoint::new(&path)).into()
}
