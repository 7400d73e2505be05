//! [`MountPoint`]: the argument of `--at`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// An absolute, normalised path of a directory that can be a mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountPoint(PathBuf);

/// The kernel's own file systems for processes and devices, which programs need.
const KEPT: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Longest path in bytes: the space in a run record.
const LONGEST: usize = lp_region::process::RUN_PATH;
/// Maximum number of mount points of one run: the space in a run record.
pub(crate) const MOST: usize = 15;

impl MountPoint {
    /// The default mount point.
    pub(crate) const DEFAULT: &str = "/light";

    /// Accepts `path` if it can be a mount point; the error says what to use instead.
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
            return Err(
                "the root cannot be a mount point; use a directory below it, such as /light".to_owned()
            );
        }
        if let Some(kept) = KEPT.iter().find(|kept| normal.starts_with(kept)) {
            return Err(format!("{kept} belongs to the kernel; use another directory, such as /light"));
        }
        let too_long =
            normal.as_os_str().len() > LONGEST || normal.iter().any(|name| name.len() > lp_abi::NAME_MAX);
        if too_long {
            return Err("the path is too long; use a shorter one, such as /light".to_owned());
        }
        // The kernel fails with ENOTDIR for a mount over a file.
        if std::fs::metadata(&normal).is_ok_and(|found| !found.is_dir()) {
            return Err("it exists and is not a directory; use a directory or an unused path".to_owned());
        }
        Ok(MountPoint(normal))
    }

    /// A path that was good when a session was made or a run began.
    pub(crate) fn unchecked(path: &Path) -> Self {
        MountPoint(path.to_owned())
    }

    /// The root directory: only a session can be over it. The error says what the host lacks.
    pub(crate) fn root() -> Result<Self, String> {
        let is_missing = |kept: &&&str| !std::fs::symlink_metadata(kept).is_ok_and(|found| found.is_dir());
        match KEPT.iter().find(is_missing) {
            Some(kept) => Err(format!("{kept}, which stays the host's, is not a directory here")),
            None => Ok(MountPoint("/".into())),
        }
    }

    /// The path as run records have it: without a trailing slash, so empty for the root directory.
    pub(crate) fn in_record(&self) -> &[u8] {
        let path = self.0.as_os_str().as_bytes();
        if path == b"/" { b"" } else { path }
    }

    /// The path of a run record.
    pub(crate) fn from_record(path: &[u8]) -> PathBuf {
        if path.is_empty() { "/".into() } else { OsStr::from_bytes(path).into() }
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether `path`, taken literally, is this directory or below it. The kernel's own directories are not
    /// below the root directory.
    pub(crate) fn covers(&self, path: &OsStr) -> bool {
        let path = Path::new(path);
        path.starts_with(&self.0) && !KEPT.iter().any(|kept| path.starts_with(kept))
    }
}

impl Default for MountPoint {
    fn default() -> Self {
        MountPoint(MountPoint::DEFAULT.into())
    }
}

/// Checks that no mount point is equal to or inside another.
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
    fn the_root_directory_is_all_but_the_kernels_own() {
        let root = MountPoint::root().unwrap();
        assert!(["/", "/usr/bin/env", "/devices", "/x"].iter().all(|path| root.covers(path.as_ref())));
        assert!(["/dev", "/proc/self", "/sys/"].iter().all(|path| !root.covers(path.as_ref())));
        assert_eq!((root.in_record(), new("/light").unwrap().in_record()), (&b""[..], &b"/light"[..]));
        assert_eq!([&b""[..], b"/x"].map(MountPoint::from_record), ["/", "/x"].map(PathBuf::from));
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
