//! [`Times`]: what putting files in their places does to directories that are no change themselves.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use crate::command::over::compare::host;

/// Times of the directories above paths that are written, as they were.
pub(crate) struct Times<'o> {
    over: &'o Path,
    before: Vec<(PathBuf, Timestamps)>,
}

impl<'o> Times<'o> {
    /// Those of directories above `paths` that are not among them.
    pub(crate) fn of<'p>(over: &'o Path, paths: impl Iterator<Item = &'p PathBuf>) -> Self {
        let paths: BTreeSet<&Path> = paths.map(PathBuf::as_path).collect();
        let above: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        let times = |path: &&Path| {
            let found = host::look(over, path).ok()?;
            let last_access = Timespec { tv_sec: found.atime(), tv_nsec: found.atime_nsec() };
            let last_modification = Timespec { tv_sec: found.mtime(), tv_nsec: found.mtime_nsec() };
            Some(((*path).to_owned(), Timestamps { last_access, last_modification }))
        };
        Times { over, before: above.difference(&paths).filter_map(times).collect() }
    }

    /// Gives the directories that are still there their times again.
    ///
    /// # Errors
    /// The path, and why.
    pub(crate) fn give(&self) -> Result<(), (PathBuf, io::Error)> {
        for (path, times) in &self.before {
            let set = || -> io::Result<()> {
                let at = host::reach(self.over, path)?;
                Ok(rustix::fs::utimensat(CWD, &*at, times, AtFlags::SYMLINK_NOFOLLOW)?)
            };
            match set() {
                // Only the owner may; the directory may be gone with what it held.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied || host::is_absence(&e) => {}
                done => done.map_err(|e| (path.clone(), e))?,
            }
        }
        Ok(())
    }
}
