//! Finds a program as execvp(3) does.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags};

use crate::command::options::mountpoint::MountPoint;
use crate::command::output::failure::{CANNOT_RUN, Failure, NOT_FOUND, reason};

/// Location of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// On the host, at this path.
    Host(PathBuf),
    /// Under a mount, or after one in PATH: only a covered process can find it.
    Mount,
}

/// Looks up `name` in `search` (the value of PATH) unless it contains a slash.
pub(crate) fn find(name: &OsStr, search: Option<&OsStr>, mounts: &[MountPoint]) -> Result<Found, Failure> {
    let show = name.to_string_lossy();
    if name.is_empty() {
        return Err(Failure::new(NOT_FOUND, "the command's name is empty"));
    }
    if name.as_bytes().contains(&b'/') {
        let path = Path::new(name);
        if in_mount(path, mounts) {
            return Ok(Found::Mount);
        }
        return match executable(path) {
            Ok(()) => Ok(Found::Host(path.to_owned())),
            Err(e) if absent(&e) => Err(Failure::new(NOT_FOUND, format!("{show}: {}", reason(&e)))),
            Err(e) => Err(Failure::new(CANNOT_RUN, format!("{show}: {}", reason(&e)))),
        };
    }
    // The default is that of glibc, confstr(_CS_PATH).
    let search = search.unwrap_or(OsStr::new("/bin:/usr/bin"));
    let mut denied = None;
    for directory in search.as_bytes().split(|b| *b == b':') {
        let path = match directory {
            b"" => PathBuf::from(name),
            _ => Path::new(OsStr::from_bytes(directory)).join(name),
        };
        if in_mount(&path, mounts) {
            return Ok(Found::Mount);
        }
        match executable(&path) {
            // Without a slash, the kernel would open a different file if the working directory changed.
            Ok(()) if directory.is_empty() => return Ok(Found::Host(Path::new(".").join(path))),
            Ok(()) => return Ok(Found::Host(path)),
            Err(e) if absent(&e) => {}
            Err(e) => denied = Some((path, e)),
        }
    }
    Err(match denied {
        Some((path, e)) => Failure::new(CANNOT_RUN, format!("{}: {}", path.display(), reason(&e))),
        None => Failure::new(NOT_FOUND, format!("{show}: command not found in PATH")),
    })
}

/// Whether `path`, taken literally, is in a mount.
pub(super) fn in_mount(path: &Path, mounts: &[MountPoint]) -> bool {
    let absolute = match path.is_absolute() {
        true => path.to_owned(),
        false => std::env::current_dir().unwrap_or_default().join(path),
    };
    mounts.iter().any(|mount| mount.covers(&lexical(&absolute)))
}

/// `path` with `.` and `..` resolved lexically.
fn lexical(path: &Path) -> OsString {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => {
                normal.pop();
            }
            std::path::Component::Normal(name) => normal.push(name),
            _ => {}
        }
    }
    normal.into_os_string()
}

/// Errors after which execvp(3) tries the next directory and finally reports "not found".
fn absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::TimedOut
    )
}

fn executable(path: &Path) -> std::io::Result<()> {
    let found = std::fs::metadata(path)?;
    if found.is_dir() {
        return Err(std::io::Error::from_raw_os_error(libc::EISDIR));
    }
    rustix::fs::accessat(rustix::fs::CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    match found.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::from_raw_os_error(libc::EACCES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn find_in(name: &str, search: &str, mounts: &[MountPoint]) -> Result<Found, Failure> {
        find(OsStr::new(name), Some(OsStr::new(search)), mounts)
    }

    fn put(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_that_may_be_executed_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::create_dir_all(one.join("tool")).unwrap();
        std::fs::create_dir(&two).unwrap();
        put(&two.join("tool"), 0o755);
        let search = format!("/nowhere:{}:{}", one.display(), two.display());
        assert_eq!(find_in("tool", &search, &[]).unwrap(), Found::Host(two.join("tool")));
    }

    #[test]
    fn not_found_and_not_executable_differ() {
        let dir = tempfile::tempdir().unwrap();
        put(&dir.path().join("plain"), 0o644);
        let search = dir.path().display().to_string();
        assert_eq!(find_in("plain", &search, &[]).unwrap_err().status, CANNOT_RUN);
        assert_eq!(find_in("none", &search, &[]).unwrap_err().status, NOT_FOUND);
        assert_eq!(find_in(&format!("{search}/plain"), "", &[]).unwrap_err().status, CANNOT_RUN);
        assert_eq!(find_in(&format!("{search}/plain/x"), "", &[]).unwrap_err().status, NOT_FOUND);
        assert_eq!(find_in("/tmp", "", &[]).unwrap_err().status, CANNOT_RUN);
        assert_eq!(find_in("", "/bin", &[]).unwrap_err().status, NOT_FOUND);
    }

    #[test]
    fn what_may_lie_in_a_mount_is_left_to_a_covered_process() {
        let light = [MountPoint::new(Path::new("/light")).unwrap()];
        assert_eq!(find_in("/light/bin/x", "", &light).unwrap(), Found::Mount);
        assert_eq!(find_in("/usr/../light/x", "", &light).unwrap(), Found::Mount);
        assert_eq!(find_in("sh", "/light/bin:/bin", &light).unwrap(), Found::Mount);
        assert!(matches!(find_in("sh", "/bin:/light/bin", &light).unwrap(), Found::Host(_)));
    }
}
