//! Files that get their name once they are complete.

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// An empty file beside `to`, which it is to become. It is removed unless it does.
pub(crate) fn begin(to: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let directory = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut prefix = to.file_name().map(OsString::from).unwrap_or_default();
    prefix.push(".");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".part").permissions(Permissions::from_mode(mode)).tempfile_in(directory)
}

/// Gives it its name.
pub(crate) fn complete(part: NamedTempFile, to: &Path) -> io::Result<()> {
    part.as_file().sync_all()?;
    part.persist(to).map(drop).map_err(io::Error::from)
}
