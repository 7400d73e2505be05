//! Suites of shell sessions: `tests/sessions/NAME.sh`.
//!
//! A line `#:: NAME [needs A,B] [exit N] [limit SECONDS] [size SIZE]` begins a session; what stands before
//! the first one belongs to all of them. Each session is a test of its own and runs in an empty directory,
//! which is `$T`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::program;
use crate::session::Session;

/// The `main` of a suite's test program.
pub fn main(name: &str) -> ExitCode {
    run(shell(name))
}

/// Gives trials to the runner, which takes the usual arguments of a Rust test program.
pub fn run(trials: Result<Vec<Trial>>) -> ExitCode {
    match trials {
        Ok(trials) => libtest_mimic::run(&Arguments::from_args(), trials).exit_code(),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A trial that compares one session. It is ignored where a program is missing, unless all have to run that
/// the distribution's packages allow.
pub fn trial(name: &str, session: Session) -> Trial {
    let needs: Vec<&str> = session.needs.iter().map(String::as_str).collect();
    let may_miss = |name: &&str| !program::all_must_run() || program::is_of_registry(name);
    let missing = program::missing(&needs).filter(may_miss);
    let missing = missing.map(|program| format!("{program} is missing"));
    let compare = move || session.compare().map_err(|error| Failed::from(format!("{error:#}")));
    let trial = Trial::test(name, compare);
    match missing {
        Some(missing) => trial.with_kind(missing).with_ignored_flag(true),
        None => trial,
    }
}

/// The sessions of `tests/sessions/NAME.sh`.
pub fn shell(name: &str) -> Result<Vec<Trial>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("sessions/{name}.sh"));
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut parts = text.split("\n#:: ");
    let common = parts.next().unwrap_or_default();
    let mut names = BTreeSet::new();
    let mut trials = Vec::new();
    for part in parts {
        let (head, body) = part.split_once('\n').context("a session without a body")?;
        let (title, session) =
            parse(head, common, body).with_context(|| format!("{}: {head}", file.display()))?;
        if !names.insert(title.clone()) {
            bail!("{}: two sessions are called {title}", file.display());
        }
        trials.push(trial(&title, session));
    }
    Ok(trials)
}

fn parse(head: &str, common: &str, body: &str) -> Result<(String, Session)> {
    let mut words = head.split_whitespace();
    let title = words.next().context("no name")?.to_owned();
    let mut session =
        Session::new(["bash", "--norc", "--noprofile", "-c", &format!("{common}\n{body}"), &title]);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("no value after {word}"))?;
        match word {
            "needs" => session.needs = value.split(',').map(str::to_owned).collect(),
            "exit" => session.exit = value.parse()?,
            "limit" => session.limit = Duration::from_secs(value.parse()?),
            "size" => session.size = value.to_owned(),
            _ => bail!("what is {word}?"),
        }
    }
    Ok((title, session))
}
