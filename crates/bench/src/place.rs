//! Where a workload runs: a directory of a kernel file system, or a Lightpath mount.

use crate::before::Design;
use crate::report::PlaceInfo;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mount point on the Lightpath side.
const MOUNT: &str = "/light";

#[derive(Debug, Clone)]
enum Kind {
    /// A new directory under this one for each sample.
    Kernel(PathBuf),
    /// A new run by this command for each sample.
    Lightpath(PathBuf),
    /// No directory: a design of [`crate::before`], in a process of this command.
    InProcess(Design),
}

#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) info: PlaceInfo,
    kind: Kind,
}

/// A directory for one sample, and how to start a program in it.
pub(crate) struct Ground {
    /// Keeps the directory until the sample ends.
    _keep: Option<tempfile::TempDir>,
    pub(crate) dir: PathBuf,
    launcher: Option<PathBuf>,
}

/// The two designs that [`crate::before`] compares, the baseline first.
pub(crate) fn designs() -> [Place; 2] {
    [Design::Before, Design::Now].map(|design| Place {
        info: PlaceInfo { name: design.name().to_owned(), dir: String::new() },
        kind: Kind::InProcess(design),
    })
}

impl Ground {
    /// The command that runs `program` with `arguments` here, in a process group of its own.
    pub(crate) fn command(&self, program: &Path, arguments: &[OsString]) -> Command {
        let mut command = match &self.launcher {
            None => Command::new(program),
            Some(launcher) => {
                let mut command = Command::new(launcher);
                command.args(["run", "--at", MOUNT, "--"]).arg(program);
                command
            }
        };
        command.args(arguments).process_group(0).env("LC_ALL", "C");
        command
    }
}

impl Place {
    /// The place provided by the Lightpath command `launcher`, after a check that it works.
    pub(crate) fn lightpath(launcher: PathBuf) -> Result<Self> {
        let output = Command::new(&launcher)
            .args(["run", "--at", MOUNT, "--", "test", "-d", MOUNT])
            .output()
            .with_context(|| format!("cannot run {}", launcher.display()))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {}", output.status, errors.lines().last().unwrap_or("no message"));
        }
        let info = PlaceInfo { name: "lightpath".to_owned(), dir: MOUNT.to_owned() };
        Ok(Self { info, kind: Kind::Lightpath(launcher) })
    }

    /// The command for one sample of [`crate::before`]: this command again, invoked the same way.
    pub(crate) fn in_process(&self, spec: &str) -> Result<Command> {
        let Kind::InProcess(design) = self.kind else { bail!("{} is a directory", self.info.name) };
        let mut command =
            Command::new(std::env::current_exe().context("cannot find this command's own path")?);
        // When invoked as `lightpath bench`, a subcommand comes first.
        command.args(std::env::args_os().nth(1).filter(|first| first == "bench"));
        command.arg("--in-process").arg(format!("{},{spec}", design.name())).process_group(0);
        Ok(command)
    }

    /// Creates the directory for one sample.
    pub(crate) fn prepare(&self) -> Result<Ground> {
        match &self.kind {
            Kind::Kernel(base) => {
                let keep = tempfile::Builder::new().prefix("lightpath-bench-").tempdir_in(base)?;
                Ok(Ground { dir: keep.path().to_owned(), _keep: Some(keep), launcher: None })
            }
            Kind::Lightpath(launcher) => {
                Ok(Ground { _keep: None, dir: PathBuf::from(MOUNT), launcher: Some(launcher.clone()) })
            }
            Kind::InProcess(_) => bail!("{} is no directory", self.info.name),
        }
    }
}

/// The kernel's file systems: one directory for each type found where programs keep their files (tmpfs
/// first), and the directories that the user adds.
pub(crate) fn kernel_places(added: &[PathBuf]) -> Result<Vec<Place>> {
    let mounts =
        std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let usual = [PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from("/var/tmp")];
    let mut places: Vec<Place> = Vec::new();
    for base in usual.into_iter().chain(home) {
        let Some(kind) = usable_type(&base, &mounts) else { continue };
        if places.iter().all(|place| place.info.name != kind) {
            places.push(kernel_place(kind, base));
        }
    }
    for base in added {
        let base = base.canonicalize().with_context(|| format!("cannot use {}", base.display()))?;
        let kind =
            usable_type(&base, &mounts).with_context(|| format!("cannot write in {}", base.display()))?;
        let taken = places.iter().any(|place| place.info.name == kind);
        let name = if taken { format!("{kind} {}", base.display()) } else { kind };
        places.push(kernel_place(name, base));
    }
    if places.is_empty() {
        bail!("no directory to measure in: neither /dev/shm nor a temporary directory can be written");
    }
    places.sort_by_key(|place| place.info.name != "tmpfs");
    Ok(places)
}

fn kernel_place(name: String, base: PathBuf) -> Place {
    Place { info: PlaceInfo { name, dir: base.display().to_string() }, kind: Kind::Kernel(base) }
}

/// The type of `dir`'s file system, if files can be created there.
fn usable_type(dir: &Path, mounts: &str) -> Option<String> {
    tempfile::tempfile_in(dir).ok()?;
    type_of(&dir.canonicalize().ok()?, mounts)
}

/// The file system type of the mount that covers `dir`, from the text of mountinfo(5).
fn type_of(dir: &Path, mounts: &str) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let (front, back) = line.split_once(" - ")?;
        let point = front.split(' ').nth(4)?;
        let kind = back.split(' ').next()?;
        // The last mount on a point is the visible one, hence >=.
        if dir.starts_with(point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                          22 21 0:5 / /dev rw - devtmpfs dev rw\n\
                          23 22 0:6 / /dev/shm rw shared:3 - tmpfs shm rw\n";

    #[test]
    fn the_longest_mount_point_names_the_type() {
        assert_eq!(type_of(Path::new("/dev/shm/x"), MOUNTS).as_deref(), Some("tmpfs"));
        assert_eq!(type_of(Path::new("/dev/shmx"), MOUNTS).as_deref(), Some("devtmpfs"));
        assert_eq!(type_of(Path::new("/tmp"), MOUNTS).as_deref(), Some("ext4"));
    }

    #[test]
    fn a_launcher_that_cannot_run_is_reported() {
        assert!(Place::lightpath(PathBuf::from("/bin/false")).is_err());
        assert!(Place::lightpath(PathBuf::from("/nonexistent/launcher")).is_err());
    }
}
