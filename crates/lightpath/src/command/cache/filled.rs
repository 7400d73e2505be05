//! Filling the cache directory with what programs load from it.

use std::path::{Path, PathBuf};

use super::preload;
use super::within::{self, Library, Outlines};

/// What programs load from the cache directory.
pub(crate) struct Filled {
    /// The preload library.
    pub(crate) preload: PathBuf,
    /// The gate for static programs.
    pub(crate) loader: PathBuf,
    /// The C library that contains the gate, if there can be one.
    pub(crate) library: Option<Library>,
}

/// Writes what is missing.
///
/// # Errors
/// The line that says why the preload library cannot be written.
pub(crate) fn fill(cache: &Path, outlines: Outlines) -> Result<Filled, String> {
    let preload = preload::extract(cache)?;
    let loader = preload::extract_static(cache)?;
    Ok(Filled { preload, loader, library: within::place(cache, outlines).ok() })
}
