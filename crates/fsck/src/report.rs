//! [`Report`]: the findings of a check.

use std::fmt;

/// Number of findings that a report keeps; the rest are only counted.
const KEPT: usize = 500;

/// Severity of a finding, in decreasing order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Severity {
    /// A handle, a count or a chain has an impossible value, whatever was interrupted: the region must not be
    /// used.
    Structure,
    /// Records contradict each other.
    Inconsistent,
    /// Something is in use although nothing names it.
    Leak,
    /// Left by dead processes; later users free or finish it.
    Leftover,
}

impl Severity {
    /// Its name, for people and for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Structure => "structure",
            Severity::Inconsistent => "inconsistent",
            Severity::Leak => "leak",
            Severity::Leftover => "leftover",
        }
    }
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// A description in one line.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.name(), self.what)
    }
}

/// Records in use, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Inodes, including blobs.
    pub inodes: u64,
    /// Directory entries.
    pub entries: u64,
    /// Long names.
    pub names: u64,
    /// Overflow buckets that hold entries. Empty ones stay in their chains.
    pub overflows: u64,
    /// Open files.
    pub files: u64,
    /// Record locks and flocks.
    pub locks: u64,
    /// Mappings.
    pub mappings: u64,
    /// Pages of data, including map pages.
    pub pages: u64,
}

/// The findings of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Findings, in the order in which they were made.
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub omitted: u64,
    /// What is in use.
    pub usage: Usage,
    worst: Option<Severity>,
}

impl Report {
    /// The highest severity found; none without findings.
    pub fn worst(&self) -> Option<Severity> {
        self.worst
    }

    /// Whether nothing was found except leftovers of dead processes.
    pub fn is_sound(&self) -> bool {
        self.worst.is_none_or(|worst| worst == Severity::Leftover)
    }

    /// The first finding of the highest severity.
    pub fn first_worst(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| Some(finding.severity) == self.worst)
    }

    /// Panics with all findings unless the region [is sound](Report::is_sound): for tests.
    ///
    /// # Panics
    /// When something is wrong.
    #[track_caller]
    pub fn expect_sound(&self, when: &str) {
        assert!(self.is_sound(), "{when}: {self}");
    }

    pub(crate) fn add(&mut self, severity: Severity, what: impl FnOnce() -> String) {
        let is_worst = self.worst.is_none_or(|worst| severity < worst);
        if is_worst {
            self.worst = Some(severity);
        }
        // The first finding of the highest severity is always kept.
        if self.findings.len() < KEPT || is_worst {
            self.findings.push(Finding { severity, what: what() });
        } else {
            self.omitted += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        match self.omitted {
            0 => Ok(()),
            more => writeln!(f, "{more} more findings of this kind or milder"),
        }
    }
}
