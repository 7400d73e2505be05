//! The program that builds site images for the gate: this one.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{directory, files};
use crate::command::output::failure::reason;

/// Puts it where every user of the run can start it, and returns its path.
pub(crate) fn place(cache: &Path) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("own path: {}", reason(&e)))?;
    // Root's children may change to any user, and root's programs are often in directories that others cannot
    // enter.
    if !rustix::process::geteuid().is_root() || directory::open_to_all(&own).is_ok() {
        return Ok(own);
    }
    let explain = |e: std::io::Error| format!("{}: {}", own.display(), reason(&e));
    let found = std::fs::metadata(&own).map_err(explain)?;
    let name = format!("lightpath-{:x}-{:x}", found.len(), found.mtime());
    let copy = cache.join(&name);
    if std::fs::metadata(&copy).is_ok_and(|kept| kept.len() == found.len()) {
        return Ok(copy);
    }
    files::place(cache, OsStr::new(&name), &std::fs::read(&own).map_err(explain)?)
}
