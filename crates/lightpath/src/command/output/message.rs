//! Standard error. It may be full or closed: what cannot be said changes nothing of what is done.

use std::fmt::Display;
use std::io::Write;

/// Says one line.
pub(crate) fn message(line: impl Display) {
    write(&format!("lightpath: {line}\n"));
}

/// Writes text as it is.
pub(crate) fn write(text: &str) {
    // There is nobody to tell of it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
