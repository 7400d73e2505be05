//! The cache directory: the preload library and the site images, kept across runs.

use std::ffi::OsStr;
use std::fs::{DirBuilder, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use super::failure::reason;
use super::trusted_path;

/// The first usable directory, created if necessary, or why there is none.
///
/// `$XDG_CACHE_HOME/lightpath`, `~/.cache/lightpath`, `/tmp/lightpath-UID`. Root's children may change to any
/// user and must still find the library, so root's directory is in a place that every user can enter, at the
/// latest `/var/cache/lightpath`.
pub(crate) fn directory() -> Result<PathBuf, String> {
    let mut refused = Vec::new();
    for candidate in candidates() {
        match prepare(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(why) => refused.push(format!("{} ({why})", candidate.display())),
        }
    }
    Err(format!("no directory for the cache, set XDG_CACHE_HOME to one of your own: {}", refused.join(", ")))
}

fn candidates() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid();
    let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let mut all = Vec::new();
    all.extend(from("XDG_CACHE_HOME").map(|path| path.join("lightpath")));
    all.extend(from("HOME").map(|path| path.join(".cache/lightpath")));
    if uid.is_root() {
        all.push(PathBuf::from("/var/cache/lightpath"));
    }
    all.push(PathBuf::from(format!("/tmp/lightpath-{}", uid.as_raw())));
    all
}

/// Whether every user can reach `path`.
pub(crate) fn open_to_all(path: &Path) -> Result<(), &Path> {
    let enterable = |path: &&Path| std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
    match path.ancestors().find(|path| !enterable(path)) {
        None => Ok(()),
        Some(closed) => Err(closed),
    }
}

/// Creates `directory` and checks that nobody else can change its contents or replace it, and that the loader
/// can use it.
pub(crate) fn prepare(directory: &Path) -> Result<(), String> {
    // The loader splits LD_PRELOAD at colons and blanks, and expands `$ORIGIN` and similar tokens.
    if directory.as_os_str().as_bytes().iter().any(|b| b": \t\n$\"'\\".contains(b)) {
        return Err("its name has a character that LD_PRELOAD cannot carry".to_owned());
    }
    trusted_path::check(directory.parent().unwrap_or(directory))?;
    let root = rustix::process::geteuid().is_root();
    let mode = if root { 0o755 } else { 0o700 };
    if std::fs::symlink_metadata(directory).is_err() {
        let above = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        if root && let Err(closed) = open_to_all(above) {
            return Err(format!("other users cannot enter {}", closed.display()));
        }
        DirBuilder::new().recursive(true).mode(mode).create(directory).map_err(|e| reason(&e))?;
    }
    let found = std::fs::symlink_metadata(directory).map_err(|e| reason(&e))?;
    check_owner(&found)?;
    if root {
        let missing = mode & !found.mode() & 0o777;
        if missing != 0 {
            let wider = std::fs::Permissions::from_mode(found.mode() & 0o7777 | mode);
            std::fs::set_permissions(directory, wider).map_err(|e| reason(&e))?;
        }
        if let Err(closed) = open_to_all(directory) {
            return Err(format!("other users cannot enter {}", closed.display()));
        }
    }
    prepare_nodes(directory, root)?;
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
        .map_err(|e| reason(&e.into()))?;
    match rustix::fs::statvfs(directory) {
        Ok(found) if found.f_flag.contains(StatVfsMountFlags::from_bits_retain(libc::ST_NOEXEC)) => {
            Err("it is mounted noexec".to_owned())
        }
        Ok(_) => Ok(()),
        Err(e) => Err(reason(&e.into())),
    }
}

/// Creates the directory in which runs keep what carries the data of FIFOs and sockets. Any user may add to
/// root's, but only who knows a name reaches anything in it.
fn prepare_nodes(directory: &Path, root: bool) -> Result<(), String> {
    let nodes = directory.join("nodes");
    let mode = if root { 0o1733 } else { 0o700 };
    match std::fs::symlink_metadata(&nodes) {
        Ok(found) if found.is_dir() && found.mode() & 0o7777 == mode => return Ok(()),
        Ok(_) => {}
        Err(_) => match DirBuilder::new().mode(mode).create(&nodes) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(reason(&e)),
            _ => {}
        },
    }
    std::fs::set_permissions(&nodes, std::fs::Permissions::from_mode(mode)).map_err(|e| reason(&e))
}

fn check_owner(found: &Metadata) -> Result<(), String> {
    if !found.is_dir() {
        return Err("it is not a directory".to_owned());
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {}", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        return Err("others may write to it".to_owned());
    }
    Ok(())
}

/// Writes `bytes`, which `name` identifies, to `directory/name` unless they are already there.
pub(crate) fn place(directory: &Path, name: &OsStr, bytes: &[u8]) -> Result<PathBuf, String> {
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
pub(crate) fn replace(directory: &Path, name: &OsStr, bytes: &[u8]) -> Result<PathBuf, String> {
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
    fn a_directory_that_others_may_write_to_is_refused() {
        let dir = scratch();
        let path = dir.path().join("open");
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(prepare(&path), Err("others may write to it".to_owned()));
    }

    #[test]
    fn a_link_or_a_file_in_its_place_is_refused() {
        let dir = scratch();
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for name in ["link", "file"] {
            assert_eq!(prepare(&dir.path().join(name)), Err("it is not a directory".to_owned()), "{name}");
        }
    }

    #[test]
    fn a_name_that_ld_preload_cannot_carry_is_refused() {
        for name in ["/tmp/a b", "/tmp/a:b", "/tmp/$LIB"] {
            assert!(prepare(Path::new(name)).unwrap_err().contains("LD_PRELOAD"), "{name}");
        }
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
