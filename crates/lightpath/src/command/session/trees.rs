//! [`Trees`]: the directories that a session is over.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::lock::lock;
use crate::command::output::failure::{Failure, REGION, reason};

/// One directory or several, none of them inside another. The run's mounts are in the same order.
///
/// A session names its files by their paths below [`Trees::above`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trees {
    all: Vec<PathBuf>,
    above: PathBuf,
}

impl Trees {
    /// The directories of `all`, absolute and canonical, that are not inside another of them.
    pub(crate) fn new(all: &[PathBuf]) -> Trees {
        let mut kept: Vec<PathBuf> = Vec::new();
        for path in all {
            if !kept.iter().any(|outer| path.starts_with(outer)) {
                kept.retain(|inner| !inner.starts_with(path));
                kept.push(path.clone());
            }
        }
        let first = kept.first().cloned().unwrap_or_default();
        let is_above = |above: &&Path| kept.iter().all(|path| path.starts_with(above));
        let above = first.ancestors().find(is_above).unwrap_or(Path::new("/")).to_owned();
        Trees { all: kept, above }
    }

    /// One directory.
    pub(crate) fn one(path: &Path) -> Trees {
        Trees { all: vec![path.to_owned()], above: path.to_owned() }
    }

    /// What [`Trees::to_bytes`] has written; none if that is nothing.
    pub(crate) fn from_bytes(text: &[u8]) -> Option<Trees> {
        let paths = text.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let all: Vec<PathBuf> = paths.map(|path| OsStr::from_bytes(path).into()).collect();
        (!all.is_empty()).then(|| Trees::new(&all))
    }

    /// The paths, separated by NULs.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let paths: Vec<&[u8]> = self.all.iter().map(|path| path.as_os_str().as_bytes()).collect();
        paths.join(&0)
    }

    /// Checks that the directories are there.
    ///
    /// # Errors
    /// One line that names the one that is not.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for tree in &self.all {
            let why = match fs::metadata(tree) {
                Ok(found) if found.is_dir() => continue,
                Ok(_) => "is no directory any more".to_owned(),
                Err(e) => format!("has gone: {}", reason(&e)),
            };
            return Err(Failure::new(REGION, format!("{} {why}", tree.display())));
        }
        Ok(())
    }

    /// Keeps others from applying to the directories, whatever their sessions, until the files are closed.
    /// Where the host has no such locks nobody is kept off.
    ///
    /// # Errors
    /// One line that names the directory that another has held for a while.
    pub(crate) fn hold(&self) -> Result<Vec<File>, Failure> {
        // All take them in one order.
        let mut all: Vec<&PathBuf> = self.all.iter().collect();
        all.sort();
        let mut held = Vec::new();
        for tree in all {
            let Ok(directory) = File::open(tree) else { continue };
            match lock(&directory) {
                Ok(false) => {
                    let line = format!("{} is being written to by another apply: try again", tree.display());
                    return Err(Failure::new(REGION, line));
                }
                _ => held.push(directory),
            }
        }
        Ok(held)
    }

    /// Has all that was written to the directories written to their disks.
    ///
    /// # Errors
    /// One line that names the directory whose file system cannot.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        for tree in &self.all {
            let Ok(directory) = File::open(tree) else { continue };
            rustix::fs::syncfs(directory)
                .map_err(|e| Failure::new(REGION, format!("{}: {}", tree.display(), reason(&e.into()))))?;
        }
        Ok(())
    }

    /// The directories.
    pub(crate) fn all(&self) -> &[PathBuf] {
        &self.all
    }

    /// The directory itself, or the nearest that all of them are inside.
    pub(crate) fn above(&self) -> &Path {
        &self.above
    }

    /// The directories, relative to that; the empty path for one directory.
    pub(crate) fn below(&self) -> Vec<PathBuf> {
        self.all.iter().map(|path| path.strip_prefix(&self.above).unwrap_or(path).to_owned()).collect()
    }

    /// The directory that a path is, or is inside.
    pub(crate) fn with(&self, path: &Path) -> Option<&Path> {
        self.all.iter().map(PathBuf::as_path).find(|tree| path.starts_with(tree))
    }

    /// The directories for messages.
    pub(crate) fn shown(&self) -> OsString {
        let names: Vec<&OsStr> = self.all.iter().map(|path| path.as_os_str()).collect();
        names.join(OsStr::new(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees(paths: &[&str]) -> Trees {
        Trees::new(&paths.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_inside_another_is_a_part_of_it() {
        assert_eq!(trees(&["/a/b", "/c", "/a", "/a/d", "/c"]).all(), ["/c", "/a"].map(PathBuf::from));
        assert_eq!(trees(&["/a", "/ab"]).all().len(), 2);
    }

    #[test]
    fn paths_are_named_below_the_nearest_directory_above_all() {
        assert_eq!(trees(&["/usr", "/etc"]).above(), Path::new("/"));
        assert_eq!(trees(&["/x/y/a", "/x/y/b/c"]).above(), Path::new("/x/y"));
        assert_eq!(trees(&["/x/y/a", "/x/y/b/c"]).below(), ["a", "b/c"].map(PathBuf::from));
        assert_eq!(trees(&["/x"]).below(), [PathBuf::new()]);
        assert_eq!(Trees::one(Path::new("/x")), trees(&["/x"]));
    }

    #[test]
    fn bytes_are_read_as_they_were_written() {
        let both = trees(&["/a", "/b c"]);
        assert_eq!(Trees::from_bytes(&both.to_bytes()), Some(both));
        assert_eq!(Trees::from_bytes(b""), None);
    }
}
