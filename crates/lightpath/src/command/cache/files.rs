//! Files of the cache directory, which several launchers write at once.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::command::output::failure::reason;

/// Writes `bytes`, which `name` identifies, to `directory/name` unless they are already there.
pub(super) fn place(directory: &Path, name: &OsStr, bytes: &[u8]) -> Result<PathBuf, String> {
    let path = directory.join(name);
    // Whoever wrote it gave it its name once it was on the disk, so after a crash it is whole or not there.
    let kept = std::fs::symlink_metadata(&path);
    if kept.is_ok_and(|found| found.is_file() && found.len() == bytes.len() as u64) {
        return Ok(path);
    }
    write(directory, name, bytes, std::fs::File::sync_all)
}

/// Writes `bytes` to `directory/name` in one step: a process that opens it sees all of it or the previous
/// contents.
pub(super) fn replace(directory: &Path, name: &OsStr, bytes: &[u8]) -> Result<PathBuf, String> {
    write(directory, name, bytes, |_| Ok(()))
}

/// The same; `finish` is done before the file gets its name.
fn write(
    directory: &Path,
    name: &OsStr,
    bytes: &[u8],
    finish: impl FnOnce(&std::fs::File) -> std::io::Result<()>,
) -> Result<PathBuf, String> {
    use std::io::Write;

    let path = directory.join(name);
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    let written = (|| {
        let mut file = tempfile::Builder::new().prefix(&hidden).tempfile_in(directory)?;
        file.write_all(bytes)?;
        // The umask must not keep other users out of root's directory; the directory's mode decides who may
        // enter.
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o755))?;
        finish(file.as_file())?;
        file.persist(&path).map_err(|e| e.error)
    })();
    written.map(|_| path).map_err(|e| format!("writing to {}: {}", directory.display(), reason(&e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn several_place_the_same() {
        let dir = scratch();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        write(dir.path(), OsStr::new("lib.so"), b"the bytes", |_| Ok(())).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn placing_replaces_what_is_not_the_same_and_leaves_nothing_else() {
        let dir = scratch();
        let name = OsStr::new("lib.so");
        for before in [None, Some("short"), Some("the bytes")] {
            if let Some(before) = before {
                std::fs::write(dir.path().join(name), before).unwrap();
            }
            let path = place(dir.path(), name, b"the bytes").unwrap();
            assert_eq!(std::fs::read(path).unwrap(), b"the bytes");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
