//! Removing what a session has kept.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a tree, also one whose directories its owner may not write to.
pub(crate) fn tree(at: &Path) -> io::Result<()> {
    match gone(fs::remove_dir_all(at)) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            open_up(at)?;
            gone(fs::remove_dir_all(at))
        }
        done => done,
    }
}

fn open_up(directory: &Path) -> io::Result<()> {
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

/// The removal of what may be gone already.
pub(crate) fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        done => done,
    }
}
