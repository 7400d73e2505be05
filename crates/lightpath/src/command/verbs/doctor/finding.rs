//! [`Finding`]: a line of the report.

use std::fmt::Write;

/// Verdict of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// Lightpath runs with limitations.
    Warn,
    /// Lightpath cannot run.
    Fail,
}

/// One line.
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    about: &'static str,
    text: String,
}

impl Finding {
    pub(super) fn ok(about: &'static str, text: impl Into<String>) -> Self {
        Finding { verdict: Verdict::Ok, about, text: text.into() }
    }

    pub(super) fn warn(about: &'static str, text: impl Into<String>) -> Self {
        Finding { verdict: Verdict::Warn, about, text: text.into() }
    }

    pub(super) fn fail(about: &'static str, text: impl Into<String>) -> Self {
        Finding { verdict: Verdict::Fail, about, text: text.into() }
    }
}

/// The lines.
pub(super) fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.about.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { verdict, about, text: line } in findings {
        let verdict = match verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{verdict}  {about:width$}  {line}");
    }
    text
}

/// A number of bytes in human-readable form.
pub(super) fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (63 - (bytes | 1).leading_zeros()) / 10;
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit as usize]),
    }
}

/// The first line of a small file provided by the kernel.
pub(super) fn setting(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned() {
        let findings = [Finding::ok("a", "one"), Finding::warn("long", "two"), Finding::fail("ab", "three")];
        assert_eq!(table(&findings), "ok    a     one\nwarn  long  two\nFAIL  ab    three\n");
    }

    #[test]
    fn bytes_are_readable() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!(human(24 << 30), "24.0 GiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }
}
