//! The preload library, carried inside this executable and laid out in the cache directory for the loader.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::cache;

/// The library, as built by `build.rs`.
pub(crate) static LIBRARY: &[u8] = include_bytes!(env!("LIGHTPATH_PRELOAD"));
/// How its file name begins; the map of a covered process shows it.
pub(crate) const PREFIX: &str = "/liblightpath-";
/// Its name in the cache: builds do not disturb each other's runs.
pub(crate) const NAME: &str = concat!("liblightpath-", env!("LIGHTPATH_PRELOAD_HASH"), ".so");

/// Puts the library into `cache` unless it is there, and returns its path.
pub(crate) fn extract(cache: &Path) -> Result<PathBuf, String> {
    cache::place(cache, OsStr::new(NAME), LIBRARY)
}

/// Bytes of the library.
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
}
