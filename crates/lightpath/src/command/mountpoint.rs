//! [`MountPoint`]: where `--at` puts a file system.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// An absolute, normalised path of a directory that is free to be covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountPoint(PathBuf);

/// The host's own file systems that name processes and devices: a program cannot live without them.
const KEPT: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Longest path, in bytes: the space for it in a run record.
const LONGEST: usize = lp_region::process::RUN_PATH;
/// Most mount points of one run: the space for them in a run record.
const MOST: usize = 15;

impl MountPoint {
    /// Where the file system appears when nobody says.
    pub(crate) const DEFAULT: &str = "/light";

    /// Takes `path` if a file system can appear there; the error says what to write instead.
    pub(crate) fn new(path: &Path) -> Result<Self, String> {
        if !path.is_absolute() {
            return Err("use an absolute path, such as /light".to_owned());
        }
        let mut normal = PathBuf::new();
        for component in path.components() {
            match component {
                Component::ParentDir => return Err("use a path without '..'".to_owned()),
                other => normal.push(other),
            }
        }
        if normal == Path::new("/") {
            return Err("the root cannot be a mount point; use a directory below it, such as /light".to_owned());
        }
        if let Some(kept) = KEPT.iter().find(|kept| normal.starts_with(kept)) {
            return Err(format!("{kept} belongs to the kernel; use another directory, such as /light"));
        }
        let too_long =
            normal.as_os_str().len() > LONGEST || normal.iter().any(|name| name.len() > lp_abi::NAME_MAX);
        if too_long {
            return Err("the path is too long; use a shorter one, such as /light".to_owned());
        }
        // The kernel answers ENOTDIR to a mount over a file.
        if std::fs::metadata(&normal).is_ok_and(|found| !found.is_dir()) {
            return Err("it exists and is not a directory; use a directory or an unused path".to_owned());
        }
        Ok(MountPoint(normal))
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether `path`, taken as it is written, is this directory or below it.
    pub(crate) fn covers(&self, path: &OsStr) -> bool {
        Path::new(path).starts_with(&self.0)
    }
}

/// Checks several against each other: each must be a tree of its own.
pub(crate) fn check_apart(points: &[MountPoint]) -> Result<(), String> {
    if points.len() > MOST {
        return Err(format!("--at is given {} times; the maximum is {MOST}", points.len()));
    }
    for (i, one) in points.iter().enumerate() {
        for other in &points[..i] {
            let (one, other) = (one.path(), other.path());
            if one == other {
                return Err(format!("--at {} is given twice; give it once", one.display()));
            }
            if one.starts_with(other) || other.starts_with(one) {
                return Err(format!(
                    "--at {} and --at {}: one is inside the other; use separate directories",
                    other.display(),
                    one.display()
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(path: &str) -> Result<MountPoint, String> {
        MountPoint::new(Path::new(path))
    }

    #[test]
    fn paths_are_normalised() {
        assert_eq!(new("//light/./a//b/").unwrap().path(), Path::new("/light/a/b"));
        assert!(new("/procedures").is_ok());
    }

    #[test]
    fn paths_that_cannot_be_covered_are_refused() {
        let long = format!("/{}", "x".repeat(256));
        for path in [
            "",
            "light",
            "./light",
            "/",
            "//.",
            "/light/..",
            "/../light",
            "/proc",
            "/proc/1",
            "/dev/shm/x",
            "/sys",
            &long,
        ] {
            assert!(new(path).is_err(), "{path}");
        }
        assert!(new("/etc/passwd").unwrap_err().contains("not a directory"));
    }

    #[test]
    fn trees_are_apart() {
        let apart = |paths: &[&str]| check_apart(&paths.iter().map(|p| new(p).unwrap()).collect::<Vec<_>>());
        assert!(apart(&["/light", "/lightning", "/a/light"]).is_ok());
        assert!(apart(&["/light", "/light/"]).unwrap_err().contains("twice"));
        assert!(apart(&["/light", "/light/sub"]).unwrap_err().contains("inside"));
        assert!(apart(&["/light/sub", "/light"]).unwrap_err().contains("inside"));
    }
}
