//! [`print()`]: standard output.

use std::io::Write;

use super::failure::Failure;
use super::message::message;

/// Writes all of `text`; the status is for `main` to return.
pub(crate) fn print(text: &[u8]) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text).and_then(|()| out.flush());
    written.map(|()| 0).map_err(|e| Failure::new(1, format!("writing to standard output: {e}")))
}

/// Says what has been done. That it cannot be said undoes nothing: that is a message, and no failure.
pub(crate) fn report(text: impl AsRef<str>) -> Result<u8, Failure> {
    if let Err(failure) = print(text.as_ref().as_bytes()) {
        message(failure);
    }
    Ok(0)
}
