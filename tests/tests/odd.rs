//! Calls with odd arguments on both doors, compared call by call: `tests/programs/odd.c`.
//!
//! The names of the tests give the seeds. `LP_TESTS_ODD=FROM..TO` selects others, `LP_TESTS_STEPS=N` another
//! length of the sequences. A sequence that differs is shrunk: steps are left out
//! as long as the rest differs, and what remains is shown as the statements of a C program.

use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Context, Result};
use libtest_mimic::{Failed, Trial};
use lp_tests::session::Session;
use lp_tests::{compile, suite};

/// Sequences of a run without a selection.
const SEEDS: u64 = 24;
/// Comparisons that shrinking one sequence may take.
const ATTEMPTS: usize = 150;

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let steps = std::env::var("LP_TESTS_STEPS").unwrap_or_else(|_| "300".to_owned());
    let steps: usize = steps.parse().context("LP_TESTS_STEPS")?;
    let trial = |seed: u64| {
        let compare = move || compare(seed, steps).map_err(|error| Failed::from(format!("{error:#}")));
        Trial::test(format!("seed_{seed}"), compare)
    };
    Ok(seeds()?.map(trial).collect())
}

fn seeds() -> Result<Range<u64>> {
    let Ok(text) = std::env::var("LP_TESTS_ODD") else { return Ok(0..SEEDS) };
    let (from, to) = text.split_once("..").context("LP_TESTS_ODD is FROM..TO")?;
    Ok(from.parse()?..to.parse()?)
}

/// The steps `kept` of a sequence, on both doors.
fn once(seed: u64, kept: &[usize]) -> Result<()> {
    let program = compile::compile("odd")?;
    let list = kept.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let last = kept.last().map_or(0, |last| last + 1);
    Session::new([program.into_os_string(), seed.to_string().into(), last.to_string().into(), list.into()])
        .compare()
}

fn compare(seed: u64, steps: usize) -> Result<()> {
    let all: Vec<usize> = (0..steps).collect();
    let Err(first) = once(seed, &all) else { return Ok(()) };
    let (kept, error) = shrink(seed, all, first);
    Err(error.context(format!("seed {seed}, steps {kept:?} are enough")))
}

/// Leaves out halves, quarters and so on of the steps, as long as the rest differs.
fn shrink(seed: u64, mut kept: Vec<usize>, mut error: anyhow::Error) -> (Vec<usize>, anyhow::Error) {
    let mut piece = kept.len().div_ceil(2);
    let mut attempts = 0;
    while piece > 0 {
        let mut at = 0;
        while at < kept.len() && attempts < ATTEMPTS {
            let rest: Vec<usize> = [&kept[..at], &kept[(at + piece).min(kept.len())..]].concat();
            attempts += 1;
            match once(seed, &rest) {
                Err(again) if !rest.is_empty() => (kept, error) = (rest, again),
                _ => at += piece,
            }
        }
        piece /= 2;
    }
    (kept, error)
}
