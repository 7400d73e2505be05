//! The cache directory: the preload library and the site images, kept across runs.

use std::fs::{DirBuilder, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lp_region::process::RUN_PATH;
use rustix::fs::StatVfsMountFlags;

use super::trusted_path;
use crate::command::output::failure::reason;

/// Bytes for the path of what is in the directory, from there.
const LONGEST: usize = 127;

/// The first usable directory, created if necessary, or why there is none.
///
/// `$XDG_CACHE_HOME/lightpath`, `~/.cache/lightpath`, `/tmp/lightpath-UID`. Root's children may change to any
/// user and must still find the library, so root's directory is in a place that every user can enter, at the
/// latest `/var/cache/lightpath`.
pub(crate) fn find() -> Result<PathBuf, String> {
    let mut refused = Vec::new();
    for candidate in candidates() {
        match fits(&candidate).and_then(|()| prepare(&candidate)) {
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

/// Checks that a run's record has space for the paths of what is in `directory`.
fn fits(directory: &Path) -> Result<(), String> {
    match directory.as_os_str().len() + LONGEST <= RUN_PATH {
        true => Ok(()),
        false => Err(format!("its path has more than {} bytes", RUN_PATH - LONGEST)),
    }
}

/// Whether every user can reach `path`.
pub(super) fn open_to_all(path: &Path) -> Result<(), &Path> {
    let enterable = |path: &&Path| std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o001 != 0);
    match path.ancestors().find(|path| !enterable(path)) {
        None => Ok(()),
        Some(closed) => Err(closed),
    }
}

/// Creates `directory` and checks that nobody else can change its contents or replace it, and that the loader
/// can use it.
pub(crate) fn prepare(directory: &Path) -> Result<(), String> {
    // The loader splits LD_PRELOAD at colons and blanks and LD_LIBRARY_PATH at semicolons, too, and expands
    // `$ORIGIN` and similar tokens.
    if directory.as_os_str().as_bytes().iter().any(|b| b":; \t\n$\"'\\".contains(b)) {
        return Err("its name has a character that LD_PRELOAD or LD_LIBRARY_PATH cannot carry".to_owned());
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
    fn a_name_that_the_loader_would_split_is_refused() {
        for name in ["a:b", "a;b", "a b", "$ORIGIN"] {
            let path = scratch().path().join(name);
            assert!(prepare(&path).is_err_and(|why| why.contains("cannot carry")), "{name}");
            assert!(!path.exists());
        }
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
}
