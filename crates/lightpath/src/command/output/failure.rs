//! [`Failure`]: the reason why the command fails, in one line, and its exit status.

use std::fmt;

/// Exit status for a usage error.
pub(crate) const USAGE: u8 = 2;
/// Exit status of `fsck`: all errors were corrected.
pub(crate) const MENDED: u8 = 1;
/// Exit status of `fsck`: errors are left.
pub(crate) const WRONG: u8 = 4;
/// Exit status of `fsck`: the file cannot be checked.
pub(crate) const UNCHECKED: u8 = 8;
/// Exit status of `fsck` for a usage error.
pub(crate) const FSCK_USAGE: u8 = 16;
/// Exit status: the region or the machine is unsuitable.
pub(crate) const REGION: u8 = 1;
/// Exit status: the program was found but cannot be run, as in a shell.
pub(crate) const CANNOT_RUN: u8 = 126;
/// Exit status: the program does not exist, as in a shell.
pub(crate) const NOT_FOUND: u8 = 127;

/// One line for standard error, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) status: u8,
    line: String,
}

impl Failure {
    /// Escapes line breaks and other control characters in `line`, which may contain file names.
    pub(crate) fn new(status: u8, line: impl Into<String>) -> Self {
        let line: String = line.into();
        let line = line.chars().flat_map(escape_control).collect();
        Failure { status, line }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

fn escape_control(c: char) -> impl Iterator<Item = char> {
    let escaped = c.is_control().then(|| c.escape_default());
    let plain = escaped.is_none().then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

/// The system's message for an error, without Rust's "(os error N)".
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_the_file_is_called() {
        assert_eq!(Failure::new(1, "a\nb\u{1b}[31mc é").to_string(), "a\\nb\\u{1b}[31mc é");
    }

    #[test]
    fn reasons_are_the_systems_own_words() {
        assert_eq!(reason(&std::io::Error::from_raw_os_error(2)), "No such file or directory");
    }
}
