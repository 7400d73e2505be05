//! [`Part`]: a file that gets its name once it is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file beside the one that it is to become. It is removed unless it does.
pub(crate) struct Part {
    pub(crate) file: File,
    /// Its name until then, which no other file has had.
    pub(crate) path: PathBuf,
    to: PathBuf,
}

impl Part {
    /// An empty file, which is to become `to`.
    pub(crate) fn new(to: &Path, mode: u32) -> io::Result<Part> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(mode);
        for number in 0u32.. {
            let mut name = to.file_name().map(OsString::from).unwrap_or_default();
            name.push(format!(".{}-{number}.part", std::process::id()));
            let path = to.with_file_name(name);
            match options.open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                opened => return Ok(Part { file: opened?, path, to: to.to_owned() }),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Gives it its name.
    pub(crate) fn complete(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &self.to)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It has its name, or is of no use to anybody.
        let _ = fs::remove_file(&self.path);
    }
}
