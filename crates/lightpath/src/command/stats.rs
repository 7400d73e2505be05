//! The table that `--stats` prints.

use super::region::Session;

/// Prints it to standard error.
pub(crate) fn print(_session: &Session) {}
