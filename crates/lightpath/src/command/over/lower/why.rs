//! [`Why`]: the reason why something cannot be unpacked.

use std::io;
use std::path::Path;

use crate::command::output::failure::reason;

/// Why something cannot be unpacked, as the rest of a line that begins with its name.
pub(super) struct Why(String);

impl Why {
    pub(super) fn new(why: impl Into<String>) -> Why {
        Why(why.into())
    }

    /// The text.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// An error of reading or writing at a path below the tree.
    pub(super) fn at(path: &Path, error: &io::Error) -> Why {
        Why::new(format!("{}: {}", path.display(), reason(error)))
    }

    /// An error of reading the archive.
    pub(super) fn broken(error: &dyn std::fmt::Display) -> Why {
        Why::new(format!("is a broken archive: {error}"))
    }
}
