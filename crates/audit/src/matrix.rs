//! Finds the pairs of commuting calls that conflict: they touch, from two processes, a cache line of the
//! region that one of them writes. Calls without a conflict scale; the scalable commutativity rule (Clements
//! and others, SOSP 2013) says that commuting calls can always be implemented that way.

use crate::probe::Probe;
use crate::tracer::Count;
use anyhow::Result;
use std::collections::BTreeSet;

/// The cache lines on which two calls conflict.
#[derive(Debug, Clone)]
pub struct Conflict {
    pub first: String,
    pub second: String,
    /// Numbered from the region's start; empty if the calls scale.
    pub lines: BTreeSet<u64>,
}

/// All pairs of a set of calls.
#[derive(Debug, Clone)]
pub struct Matrix {
    pub calls: Vec<String>,
    pub pairs: Vec<Conflict>,
}

impl Matrix {
    /// Audits every pair of `calls`, each also with itself. `done` is called after each pair.
    ///
    /// # Errors
    /// If a pair cannot be audited.
    pub fn of(probe: &Probe, calls: &[&str], mut done: impl FnMut(&Conflict)) -> Result<Self> {
        let mut pairs = Vec::new();
        for (index, first) in calls.iter().enumerate() {
            for second in &calls[index..] {
                let [one, other] = probe.audit_pair(first, second)?;
                let lines = conflicting_lines(&one.count, &other.count);
                let conflict = Conflict { first: (*first).to_owned(), second: (*second).to_owned(), lines };
                done(&conflict);
                pairs.push(conflict);
            }
        }
        Ok(Self { calls: calls.iter().map(|call| (*call).to_owned()).collect(), pairs })
    }

    /// The share of pairs without a conflict, from 0 to 1.
    #[must_use]
    pub fn conflict_free(&self) -> f64 {
        let free = self.pairs.iter().filter(|pair| pair.lines.is_empty()).count();
        free as f64 / self.pairs.len().max(1) as f64
    }

    /// Number of lines on which `first` and `second` conflict.
    #[must_use]
    pub fn conflicts(&self, first: &str, second: &str) -> Option<usize> {
        let matches = |pair: &&Conflict| {
            pair.first == first && pair.second == second || pair.first == second && pair.second == first
        };
        self.pairs.iter().find(matches).map(|pair| pair.lines.len())
    }
}

/// The lines that one writes and the other reads or writes.
pub(crate) fn conflicting_lines(one: &Count, other: &Count) -> BTreeSet<u64> {
    let against = |writer: &Count, reader: &Count| -> BTreeSet<u64> {
        let touched: BTreeSet<_> = reader.lines_read.union(&reader.lines_written).copied().collect();
        writer.lines_written.intersection(&touched).copied().collect()
    };
    against(one, other).union(&against(other, one)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(read: &[u64], written: &[u64]) -> Count {
        Count {
            lines_read: read.iter().copied().collect(),
            lines_written: written.iter().copied().collect(),
            ..Count::default()
        }
    }

    #[test]
    fn reading_together_is_no_conflict_and_one_writer_is() {
        let lines =
            |one: &Count, other: &Count| conflicting_lines(one, other).into_iter().collect::<Vec<_>>();
        assert_eq!(lines(&count(&[1, 2], &[3]), &count(&[1, 2], &[4])), []);
        assert_eq!(lines(&count(&[1], &[2]), &count(&[2], &[])), [2]);
        assert_eq!(lines(&count(&[2], &[]), &count(&[], &[2])), [2]);
        assert_eq!(lines(&count(&[], &[5]), &count(&[], &[5])), [5]);
    }
}
