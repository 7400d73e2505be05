//! The preload library, embedded in this executable and written to the cache directory for the loader.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::files;

/// The library, as built by `build.rs`.
pub(super) static LIBRARY: &[u8] = include_bytes!(env!("LIGHTPATH_PRELOAD"));
/// Prefix of its file name, as it appears in the map of a covered process.
pub(crate) const PREFIX: &str = "/liblightpath-";
/// Its name in the cache, different for each build so that builds do not disturb each other's runs.
pub(crate) const NAME: &str = concat!("liblightpath-", env!("LIGHTPATH_PRELOAD_HASH"), ".so");

/// The hash in [`NAME`].
pub(crate) fn hash() -> [u8; 16] {
    u128::from_str_radix(env!("LIGHTPATH_PRELOAD_HASH"), 16).map_or([0; 16], u128::to_be_bytes)
}

/// Writes the library to `cache` unless it is there, and returns its path.
pub(crate) fn extract(cache: &Path) -> Result<PathBuf, String> {
    files::place(cache, OsStr::new(NAME), LIBRARY)
}

/// Puts the gate for static programs into `cache` unless it is there, and returns its path. It is made from
/// the library; the gate looks for it beside that when it executes one (`static_gate` in
/// `low/exec/environment.rs`).
pub(crate) fn extract_static(cache: &Path) -> Result<PathBuf, String> {
    let name = NAME.replace(".so", "-static.so");
    let path = cache.join(&name);
    if std::fs::metadata(&path).is_ok_and(|found| found.is_file() && found.len() == LIBRARY.len() as u64) {
        return Ok(path);
    }
    let gate = lp_sites::by_gs(LIBRARY).map_err(|why| why.to_string())?;
    files::replace(cache, OsStr::new(&name), &gate)
}

/// Size of the library in bytes.
pub(crate) fn size() -> usize {
    LIBRARY.len()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_library_inside_is_a_shared_object() {
        assert_eq!(&super::LIBRARY[..4], b"\x7fELF");
        assert_eq!(super::LIBRARY[16], 3, "ET_DYN");
    }

    #[test]
    fn the_gate_for_static_programs_differs_in_prefixes_only() {
        let gate = lp_sites::by_gs(super::LIBRARY).unwrap();
        assert_eq!(gate.len(), super::LIBRARY.len());
        let mut changes = super::LIBRARY.iter().zip(&gate).filter(|(from, to)| from != to).peekable();
        assert!(changes.peek().is_some());
        assert!(changes.all(|change| change == (&0x64, &0x65)));
    }
}
