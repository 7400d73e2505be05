//! The two file systems a session is run on, reached by paths of the same length.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use rustix::fs::StatFs;
use tempfile::{Builder, TempDir};

use crate::binary;

/// What answers the file calls of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A directory on the host's tmpfs: the oracle.
    Kernel,
    /// A mount of `lightpath run --at`, at a path that does not exist on the host, so that a call that
    /// escapes finds nothing.
    Lightpath,
    /// An empty directory of the host under `lightpath run --over`: what differs from a mount is at fault.
    Over,
}

/// `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

impl Door {
    /// The door that is held against the kernel.
    pub fn tested() -> Result<Door> {
        match std::env::var("LP_TESTS_DOOR").as_deref() {
            Err(_) | Ok("lightpath") => Ok(Door::Lightpath),
            Ok("tmpfs") => Ok(Door::Kernel),
            Ok("over") => Ok(Door::Over),
            Ok(other) => bail!("LP_TESTS_DOOR={other}: lightpath, over or tmpfs"),
        }
    }

    /// A command that runs `program` with this door's file system at `mount`.
    pub fn command(self, mount: &Path, size: &str, program: impl AsRef<OsStr>) -> Result<Command> {
        if self != Door::Lightpath {
            std::fs::create_dir(mount).with_context(|| mount.display().to_string())?;
            // As the root of a tmpfs of its own.
            std::fs::set_permissions(mount, PermissionsExt::from_mode(0o1777))?;
        }
        if self == Door::Kernel {
            return Ok(Command::new(program));
        }
        if self == Door::Over {
            let mut command = Command::new(binary::lightpath()?);
            command.arg("run").arg("--over").arg(mount).args(["--discard", "--"]).arg(program);
            return Ok(command);
        }
        let mut command = Command::new(binary::lightpath()?);
        command.arg("run").arg("--at").arg(mount).args(["--size", size, "--"]).arg(program);
        Ok(command)
    }

    /// Takes the file system away again; a mount's path must still not exist on the host.
    pub fn close(self, mount: &Path) -> Result<()> {
        match self {
            Door::Kernel => std::fs::remove_dir_all(mount).with_context(|| mount.display().to_string()),
            // It fails if a call has escaped.
            Door::Over => std::fs::remove_dir(mount).with_context(|| mount.display().to_string()),
            Door::Lightpath if !mount.exists() => Ok(()),
            Door::Lightpath => bail!("calls escaped to the host: {} was made there", mount.display()),
        }
    }
}

/// Where mounts of a test appear: a fresh directory on a tmpfs, and one of the same length where Lightpath
/// may put a mount, which it refuses to do below `/dev`.
pub struct Place {
    kernel: TempDir,
    lightpath: Option<TempDir>,
}

impl Place {
    /// Makes both.
    pub fn new() -> Result<Place> {
        let kernel = directory_in(tmpfs()?)?;
        let lightpath = match tmpfs()?.starts_with("/dev") {
            true => Some(directory_in(Path::new(BESIDE))?),
            false => None,
        };
        Ok(Place { kernel, lightpath })
    }

    /// Makes both on one file system, for what tests calls on the host around a mount.
    pub fn beside() -> Result<Place> {
        Ok(Place {
            kernel: directory_in(Path::new(BESIDE))?,
            lightpath: Some(directory_in(Path::new(BESIDE))?),
        })
    }

    /// The directory in which the door's mount appears.
    pub fn of(&self, door: Door) -> &Path {
        match (door, &self.lightpath) {
            (Door::Lightpath | Door::Over, Some(beside)) => beside.path(),
            _ => self.kernel.path(),
        }
    }
}

fn directory_in(above: &Path) -> Result<TempDir> {
    Ok(Builder::new().prefix("lp-").permissions(PermissionsExt::from_mode(0o755)).tempdir_in(above)?)
}

/// As long as `/dev/shm`, so that nothing that counts the bytes of a path can tell them apart.
const BESIDE: &str = "/var/tmp";

/// A directory on the host's roomiest tmpfs (`$LP_TESTS_TMPFS` or one of the usual ones), for mounts to
/// appear in.
fn tmpfs() -> Result<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let named = std::env::var_os("LP_TESTS_TMPFS").map(PathBuf::from);
        let usual = ["/dev/shm", "/tmp", "/run"].map(PathBuf::from);
        let candidates = named.map_or_else(|| usual.to_vec(), |path| vec![path]);
        candidates.into_iter().filter_map(|path| Some((room(&path)?, path))).max().map(|(_, path)| path)
    });
    found.as_deref().context("no writable tmpfs on this host: set LP_TESTS_TMPFS")
}

/// Bytes free, if `path` is a tmpfs that this user may write to.
fn room(path: &Path) -> Option<u64> {
    let status: StatFs = rustix::fs::statfs(path).ok()?;
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).ok()?;
    (status.f_type == TMPFS_MAGIC).then(|| status.f_bavail * u64::try_from(status.f_bsize).unwrap_or(0))
}
