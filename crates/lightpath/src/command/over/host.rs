//! What the host has at a path of a session's directory. Symbolic links on the way are not followed: where
//! the session has a directory, the host may have a link, and what that leads to is at another path.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::Path;

/// What is at `path` below `over`.
///
/// # Errors
/// `ENOTDIR` if what is above is no directory; those of lstat(2).
pub(super) fn look(over: &Path, path: &Path) -> io::Result<Metadata> {
    if path.as_os_str().is_empty() {
        return fs::symlink_metadata(over);
    }
    let found = fs::symlink_metadata(over.join(path))?;
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if !fs::symlink_metadata(over.join(above))?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
    }
    Ok(found)
}

/// Whether an error says that nothing is there.
pub(super) fn is_absence(error: &io::Error) -> bool {
    // ELOOP: by a link that is on the way.
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ELOOP)
}
