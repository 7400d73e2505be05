//! Calls with odd arguments on both doors, compared call by call: `tests/programs/odd`.
//!
//! `LP_TESTS_ODD=new`, as scripts/test sets it, draws sequences that no run before it drew, besides some that
//! are always the same. The names of the tests give the seeds: `LP_TESTS_ODD=FROM..TO` selects them again, or
//! others, and `LP_TESTS_STEPS=N` another length of the sequences. A sequence that differs is shrunk: steps
//! are left out as long as the rest differs, and what remains is shown as the statements of a C program, with
//! the command that does this again. A difference that does not come again is told and is no failure.

use std::iter::once;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use libtest_mimic::{Failed, Trial};
use lp_tests::session::Session;
use lp_tests::{compile, suite};

/// Sequences of a run without a selection.
const OLD: u64 = 2000;
/// Sequences of a run of `new` that are not among those, which gives up as many of them.
const NEW: u64 = 500;
/// Sequences of one test.
const BATCH: usize = 50;
/// Comparisons that shrinking one sequence may take.
const ATTEMPTS: usize = 150;

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let steps = std::env::var("LP_TESTS_STEPS").unwrap_or_else(|_| "100".to_owned());
    let steps: usize = steps.parse().context("LP_TESTS_STEPS")?;
    let batch = |seeds: Range<u64>| {
        let name = format!("seeds_{}..{}", seeds.start, seeds.end);
        Trial::test(name, move || compare(seeds, steps).map_err(|error| Failed::from(format!("{error:#}"))))
    };
    let batches = |seeds: Range<u64>| {
        let end = seeds.end;
        seeds.step_by(BATCH).map(move |from| from..end.min(from + BATCH as u64))
    };
    Ok(seeds()?.into_iter().flat_map(batches).map(batch).collect())
}

fn seeds() -> Result<Vec<Range<u64>>> {
    let Ok(text) = std::env::var("LP_TESTS_ODD") else { return Ok(once(0..OLD).collect()) };
    if text == "new" {
        let new = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() * NEW;
        return Ok(vec![0..OLD - NEW, new..new + NEW]);
    }
    let (from, to) = text.split_once("..").context("LP_TESTS_ODD is FROM..TO or new")?;
    Ok(once(from.parse()?..to.parse()?).collect())
}

/// Runs the program with these arguments on both doors.
fn run<const N: usize>(arguments: [String; N]) -> Result<()> {
    let program = compile::compile("odd")?.into_os_string();
    Session::new([program].into_iter().chain(arguments.map(Into::into))).compare()
}

/// The steps `kept` of a sequence.
fn steps_of(seed: u64, kept: &[usize]) -> Result<()> {
    let list = kept.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let last = kept.last().map_or(0, |last| last + 1);
    run([seed.to_string(), last.to_string(), list])
}

fn compare(seeds: Range<u64>, steps: usize) -> Result<()> {
    let whole = || run([format!("{}+{}", seeds.start, seeds.end - seeds.start), steps.to_string()]);
    let Err(error) = whole() else { return Ok(()) };
    let all: Vec<usize> = (0..steps).collect();
    for seed in seeds.clone() {
        if let Err(first) = steps_of(seed, &all) {
            let (kept, error) = shrink(seed, all, first);
            return Err(error.context(format!(
                "seed {seed}, steps {kept:?} are enough; again:\n  LP_TESTS_ODD={seed}..{} LP_TESTS_STEPS={steps} cargo test --release -p lp-tests --test odd\n",
                seed + 1
            )));
        }
    }
    if whole().is_ok() {
        // On the kernel's side all tests share one tmpfs.
        eprintln!("{seeds:?} differ once, and neither alone nor again: {error:#}");
        return Ok(());
    }
    Err(error.context("none of the sequences differs alone, but all of them do together"))
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
            match steps_of(seed, &rest) {
                Err(again) if !rest.is_empty() => (kept, error) = (rest, again),
                _ => at += piece,
            }
        }
        piece /= 2;
    }
    (kept, error)
}
