//! The limits of each call, in `budgets.toml`.

use crate::decode::Serialising;
use crate::library::Descriptors;
use crate::probe::{Audit, Ground};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fmt;

const TEXT: &str = include_str!("../budgets.toml");

/// The limits of one call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub call: String,
    /// Instructions. Through the gate: from libc's entry to its return, including libc's own and the gate's.
    /// Through the library: from call to return.
    pub instructions: usize,
    /// `lock`-prefixed instructions, `xchg` with memory, fences, `cpuid`.
    #[serde(default)]
    pub serialising: usize,
    #[serde(default)]
    pub syscalls: usize,
    /// Functions of the C library in which threads can be cancelled (pthreads(7)), other than those that
    /// enter by a thunk of their own: since glibc 2.41 each takes some instructions more.
    #[serde(default)]
    pub cancellable: usize,
}

/// Instructions more for each such function since glibc 2.41: they make their calls at one place, with the
/// number in a register (ADR 7).
const ONE_SITE: usize = 80;

/// Whether this process's glibc is one of these: it has symbols of that version.
fn has_one_site() -> bool {
    const VERSION: &[u8] = b"GLIBC_2.41";
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
    let library = paths.into_iter().find(|path| path.ends_with("/libc.so.6"));
    let contents = library.and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
    contents.windows(VERSION.len()).any(|text| text == VERSION)
}

/// The tables, by door, and for processes whose threads share a descriptor table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budgets {
    gate: Vec<Budget>,
    library: Vec<Budget>,
    gate_threads: Vec<Budget>,
    library_threads: Vec<Budget>,
}

impl Budgets {
    /// The table of the repository.
    ///
    /// # Errors
    /// If it is not as [`Budget`] says.
    pub fn load() -> Result<Self> {
        let mut all: Budgets = toml::from_str(TEXT).context("cannot read budgets.toml")?;
        if has_one_site() {
            for budget in all.gate.iter_mut().chain(&mut all.gate_threads) {
                budget.instructions += budget.cancellable * ONE_SITE;
            }
        }
        Ok(all)
    }

    /// The limits for the door of `ground`; the kernel has none.
    #[must_use]
    pub fn of(&self, ground: &Ground, descriptors: Descriptors) -> &[Budget] {
        match (ground, descriptors) {
            (Ground::Directory(_), _) => &[],
            (Ground::Lightpath(_), Descriptors::Own) => &self.gate,
            (Ground::Lightpath(_), Descriptors::Shared) => &self.gate_threads,
            (Ground::Library(_), Descriptors::Own) => &self.library,
            (Ground::Library(_), Descriptors::Shared) => &self.library_threads,
        }
    }
}

/// A limit that a call exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excess {
    Instructions {
        spent: usize,
        allowed: usize,
    },
    Serialising {
        spent: Vec<Serialising>,
        allowed: usize,
    },
    Syscalls {
        spent: Vec<u64>,
        allowed: usize,
    },
    /// The count differs between repetitions.
    Unsteady(Vec<usize>),
}

impl Budget {
    /// Where `audit` exceeds the limits.
    #[must_use]
    pub fn excesses(&self, audit: &Audit) -> Vec<Excess> {
        let mut excesses = Vec::new();
        let count = &audit.count;
        if count.total() > self.instructions {
            excesses.push(Excess::Instructions { spent: count.total(), allowed: self.instructions });
        }
        if count.serialising.len() > self.serialising {
            excesses
                .push(Excess::Serialising { spent: count.serialising.clone(), allowed: self.serialising });
        }
        if count.syscalls.len() > self.syscalls {
            excesses.push(Excess::Syscalls { spent: count.syscalls.clone(), allowed: self.syscalls });
        }
        if !audit.is_steady() {
            excesses.push(Excess::Unsteady(audit.totals.clone()));
        }
        excesses
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions { spent, allowed } => write!(f, "{spent} instructions, allowed {allowed}"),
            Self::Serialising { spent, allowed } => write!(f, "serialising {spent:?}, allowed {allowed}"),
            Self::Syscalls { spent, allowed } => write!(f, "system calls {spent:?}, allowed {allowed}"),
            Self::Unsteady(totals) => write!(f, "counts differ: {totals:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracer::Count;

    #[test]
    fn every_budget_is_of_a_known_call() {
        let budgets = Budgets::load().unwrap();
        for ground in [Ground::Lightpath("lightpath".into()), Ground::Library("lp-audit".into())] {
            for table in [Descriptors::Own, Descriptors::Shared] {
                assert!(!budgets.of(&ground, table).is_empty());
                for budget in budgets.of(&ground, table) {
                    assert!(ground.calls().contains(&budget.call.as_str()), "{}", budget.call);
                }
            }
        }
    }

    #[test]
    fn each_kind_of_excess_is_found() {
        let budget = Budget {
            call: "lseek".to_owned(),
            instructions: 10,
            serialising: 0,
            syscalls: 0,
            cancellable: 0,
        };
        let mut count = Count::default();
        count.instructions.insert("libc.so.6".to_owned(), 10);
        let within = Audit { count: count.clone(), totals: vec![10, 10] };
        assert_eq!(budget.excesses(&within), []);
        count.instructions.insert("gate".to_owned(), 1);
        count.serialising.push(Serialising::Locked);
        count.syscalls.push(8);
        let beyond = Audit { count, totals: vec![11, 40, 41] };
        assert_eq!(budget.excesses(&beyond).len(), 4);
    }
}
