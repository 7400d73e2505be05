//! Calls with odd arguments on both doors, compared call by call: `tests/programs/odd`.
//!
//! `LP_TESTS_ODD=new`, as scripts/test sets it, draws sequences that no run before it drew, besides some that
//! are always the same. The names of the tests give the seeds: `LP_TESTS_ODD=FROM..TO` selects them again, or
//! others, and `LP_TESTS_STEPS=N` another length of the sequences. A sequence that differs is shrunk: steps
//! are left out as long as the rest differs, and what remains is shown as the statements of a C program, with
//! the command that does this again. A difference that does not come again is told and is no failure.
//!
//! The sequences `beside` work in the host directory in which the mount appears, always the same ones:
//! `LP_TESTS_BESIDE=FROM..TO` selects others. Some are made over a directory of the host as well, which must
//! stay empty.

use std::iter::once;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::Door;
use lp_tests::session::Session;
use lp_tests::{compile, suite};

/// Sequences of a run without a selection.
const OLD: u64 = 2000;
/// Sequences of a run of `new` that are not among those, which gives up as many of them.
const NEW: u64 = 500;
/// Sequences of one test.
const BATCH: usize = 50;
/// Sequences beside a mount, each in a run of its own, and how many one test makes.
const BESIDE: Range<u64> = 0..600;
const BESIDE_BATCH: usize = 50;
/// How many of these are made over a directory.
const OVER: u64 = 150;
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
    let beside = |door: Option<Door>, seeds: Range<u64>| {
        let kind = if door == Some(Door::Over) { "over" } else { "beside" };
        let name = format!("{kind}_{}..{}", seeds.start, seeds.end);
        Trial::test(name, move || {
            compare_beside(door, seeds, steps).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    let trials = seeds()?.into_iter().flat_map(|seeds| pieces(seeds, BATCH)).map(batch);
    let around = seeds_beside()?;
    let over = around.start..around.end.min(around.start + OVER);
    let trials = trials.chain(pieces(around, BESIDE_BATCH).map(|seeds| beside(None, seeds)));
    Ok(trials.chain(pieces(over, BESIDE_BATCH).map(|seeds| beside(Some(Door::Over), seeds))).collect())
}

fn pieces(seeds: Range<u64>, most: usize) -> impl Iterator<Item = Range<u64>> {
    let end = seeds.end;
    seeds.step_by(most).map(move |from| from..end.min(from + most as u64))
}

fn seeds() -> Result<Vec<Range<u64>>> {
    let Ok(text) = std::env::var("LP_TESTS_ODD") else { return Ok(once(0..OLD).collect()) };
    if text == "new" {
        let new = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() * NEW;
        return Ok(vec![0..OLD - NEW, new..new + NEW]);
    }
    Ok(vec![range(&text).context("LP_TESTS_ODD is FROM..TO or new")?])
}

fn seeds_beside() -> Result<Range<u64>> {
    let Ok(text) = std::env::var("LP_TESTS_BESIDE") else { return Ok(BESIDE) };
    range(&text).context("LP_TESTS_BESIDE is FROM..TO")
}

fn range(text: &str) -> Result<Range<u64>> {
    let (from, to) = text.split_once("..").context("no range")?;
    Ok(from.parse()?..to.parse()?)
}

/// Runs the program with these arguments on both doors.
fn run<const N: usize>(arguments: [String; N]) -> Result<()> {
    session(arguments)?.compare()
}

fn session(arguments: impl IntoIterator<Item = String>) -> Result<Session> {
    let program = compile::compile("odd")?.into_os_string();
    Ok(Session::new([program].into_iter().chain(arguments.into_iter().map(Into::into))))
}

/// The steps `kept` of a sequence, and as many as there must be.
fn selected(seed: u64, kept: &[usize]) -> [String; 3] {
    let list = kept.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let last = kept.last().map_or(0, |last| last + 1);
    [seed.to_string(), last.to_string(), list]
}

/// The steps `kept` of a sequence beside a mount.
fn steps_beside(door: Option<Door>, seed: u64, kept: &[usize]) -> Result<()> {
    let arguments = ["-b".to_owned()].into_iter().chain(selected(seed, kept));
    Session { beside: true, door, ..session(arguments)? }.compare()
}

fn compare(seeds: Range<u64>, steps: usize) -> Result<()> {
    let whole = || run([format!("{}+{}", seeds.start, seeds.end - seeds.start), steps.to_string()]);
    let Err(error) = whole() else { return Ok(()) };
    compare_each(seeds.clone(), steps, "LP_TESTS_ODD", &|seed, kept| run(selected(seed, kept)))?;
    if whole().is_ok() {
        // On the kernel's side all tests share one tmpfs.
        eprintln!("{seeds:?} differ once, and neither alone nor again: {error:#}");
        return Ok(());
    }
    Err(error.context("none of the sequences differs alone, but all of them do together"))
}

fn compare_beside(door: Option<Door>, seeds: Range<u64>, steps: usize) -> Result<()> {
    compare_each(seeds, steps, "LP_TESTS_BESIDE", &|seed, kept| steps_beside(door, seed, kept))
}

/// Makes steps of a sequence.
type Make<'m> = &'m dyn Fn(u64, &[usize]) -> Result<()>;

/// Compares sequences one by one. `variable` selects them.
fn compare_each(seeds: Range<u64>, steps: usize, variable: &str, make: Make<'_>) -> Result<()> {
    let all: Vec<usize> = (0..steps).collect();
    for seed in seeds {
        if let Err(first) = make(seed, &all) {
            let (kept, error) = shrink(seed, all, first, make);
            return Err(error.context(format!(
                "seed {seed}, steps {kept:?} are enough; again:\n  {variable}={seed}..{} LP_TESTS_STEPS={steps} cargo test --release -p lp-tests --test odd\n",
                seed + 1
            )));
        }
    }
    Ok(())
}

/// Leaves out halves, quarters and so on of the steps, as long as the rest differs.
fn shrink(
    seed: u64,
    mut kept: Vec<usize>,
    mut error: anyhow::Error,
    make: Make<'_>,
) -> (Vec<usize>, anyhow::Error) {
    let mut piece = kept.len().div_ceil(2);
    let mut attempts = 0;
    while piece > 0 {
        let mut at = 0;
        while at < kept.len() && attempts < ATTEMPTS {
            let rest: Vec<usize> = [&kept[..at], &kept[(at + piece).min(kept.len())..]].concat();
            attempts += 1;
            match make(seed, &rest) {
                Err(again) if !rest.is_empty() => (kept, error) = (rest, again),
                _ => at += piece,
            }
        }
        piece /= 2;
    }
    (kept, error)
}
