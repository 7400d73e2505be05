//! Programs that limit themselves (seccomp(2)), and runs under a filter from outside: `tests/programs/filter.c`, whose cases
//! run on tmpfs and on a mount.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::{binary, compile, process, suite};

const LIMIT: Duration = Duration::from_secs(60);
/// `EPERM`.
const EPERM: &str = "1";
/// Number of membarrier(2).
const MEMBARRIER: &str = "324";

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let program = compile::compile("filter")?;
    let cases = String::from_utf8(Command::new(&program).arg("--list").output()?.stdout)?;
    let mut trials = Vec::new();
    for case in cases.lines().map(str::to_owned) {
        let (name, program) = (case.clone(), program.clone());
        trials.push(trial(&name, move || compare(&program, &case)));
    }
    let from_outside = program.clone();
    trials.push(trial("filter_from_outside", move || filter_from_outside(&from_outside)));
    trials.push(trial("filter_without_barriers", move || filter_without_barriers(&program)));
    Ok(trials)
}

fn trial(name: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(|error| Failed::from(format!("{error:#}"))))
}

/// What a command ended with, and what it said.
fn outcome(command: &mut Command) -> Result<(String, String)> {
    let directory = tempfile::tempdir()?;
    let said = directory.path().join("said");
    let file = std::fs::File::create(&said)?;
    command.current_dir("/").stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.env("XDG_CACHE_HOME", binary::scratch_dir()?);
    let status = process::run(command, LIMIT)?;
    Ok((status, String::from_utf8_lossy(&std::fs::read(said)?).into_owned()))
}

fn compare(program: &Path, case: &str) -> Result<()> {
    let place = Place::new()?;
    let run = |door: Door| {
        let mount = place.of(door).join("m");
        let done = outcome(door.command(&mount, "1G", program)?.arg(case).arg(&mount));
        door.close(&mount)?;
        done.map(|(status, said)| (status, said.replace(&*mount.to_string_lossy(), "M")))
    };
    let kernel = run(Door::Kernel)?;
    ensure!(kernel.0 == "exit 0", "the case is wrong: {kernel:?}");
    let tested = run(Door::tested()?)?;
    ensure!(tested == kernel, "on the kernel {kernel:?}\nhere {tested:?}");
    Ok(())
}

/// Runs a shell script in a run that is started under a filter which denies `call`.
fn under_filter(program: &Path, call: &str, script: &str) -> Result<(String, String)> {
    let mut command = Command::new(program);
    command.args(["deny", call, EPERM]).arg(binary::lightpath()?).args(["run", "--", "sh", "-c", script]);
    outcome(&mut command)
}

/// A container's filter that has nothing against the gate's calls.
fn filter_from_outside(program: &Path) -> Result<()> {
    let script = "echo a > /light/f; for i in 1 2 3; do cat /light/f > /light/$i & done; wait; cat /light/[0-9]";
    let ptrace = "101";
    let done = under_filter(program, ptrace, script)?;
    ensure!(done == ("exit 0".to_owned(), "a\na\na\n".to_owned()), "{done:?}");
    Ok(())
}

/// Without barriers a run does not start.
fn filter_without_barriers(program: &Path) -> Result<()> {
    let (status, said) = under_filter(program, MEMBARRIER, "echo a > /light/f")?;
    if status == "exit 0" || said.lines().count() != 1 || !said.contains("membarrier") {
        bail!("{status}: {said}");
    }
    Ok(())
}
