//! Random sequences of calls on both doors, compared call by call.
//!
//! `LP_TESTS_SEEDS=FROM..TO` selects other seeds, `LP_TESTS_STEPS=N` another length of the sequences.

use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Context, Result};
use libtest_mimic::Trial;
use lp_tests::session::Session;
use lp_tests::{compile, suite};

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let program = compile::compile("fuzz")?;
    let steps = std::env::var("LP_TESTS_STEPS").unwrap_or_else(|_| "2000".to_owned());
    let trial = |seed: u32| {
        let seed = seed.to_string();
        let session = Session::new([program.as_os_str(), seed.as_ref(), steps.as_ref()]);
        suite::trial(&format!("seed_{seed}"), session)
    };
    Ok(seeds()?.map(trial).collect())
}

fn seeds() -> Result<Range<u32>> {
    let Ok(text) = std::env::var("LP_TESTS_SEEDS") else { return Ok(0..60) };
    let (from, to) = text.split_once("..").context("LP_TESTS_SEEDS is FROM..TO")?;
    Ok(from.parse()?..to.parse()?)
}
