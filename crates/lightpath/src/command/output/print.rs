//! [`print()`]: standard output.

use std::io::Write;

use super::failure::Failure;

/// Writes all of `text`; the status is for `main` to return.
pub(crate) fn print(text: &[u8]) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text).and_then(|()| out.flush());
    written.map(|()| 0).map_err(|e| Failure::new(1, format!("writing to standard output: {e}")))
}
