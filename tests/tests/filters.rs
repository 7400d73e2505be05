//! Programs that restrict themselves with seccomp(2), and runs under a filter from outside:
//! `tests/programs/filter.c`, whose cases run on tmpfs and on a mount.

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
/// For `filter deny`: kill instead of an errno.
const KILL: &str = "0";
/// Number of ptrace(2).
const PTRACE: &str = "101";

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
    type Check = fn(&Path) -> Result<()>;
    let others: [(&str, Check); 3] = [
        ("filter_from_outside", filter_from_outside),
        ("filter_that_denies", filter_that_denies),
        ("ring_from_outside", ring_from_outside),
    ];
    for (name, run) in others {
        let program = program.clone();
        trials.push(trial(name, move || run(&program)));
    }
    Ok(trials)
}

fn trial(name: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(|error| Failed::from(format!("{error:#}"))))
}

/// The exit status of a command, and its output.
fn outcome(command: &mut Command) -> Result<(String, String)> {
    let directory = tempfile::tempdir()?;
    let said = directory.path().join("said");
    let file = std::fs::File::create(&said)?;
    command.current_dir("/").stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    command.env("XDG_CACHE_HOME", binary::cache_home()?);
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

/// Runs a shell script in a run, after a setup that `program` makes.
fn started_by(program: &Path, how: &[&str], script: &str) -> Result<(String, String)> {
    let mut command = Command::new(program);
    command.args(how).arg(binary::lightpath()?).args(["run", "--", "sh", "-c", script]);
    outcome(&mut command)
}

/// A container's filter that allows the gate's calls.
fn filter_from_outside(program: &Path) -> Result<()> {
    let script =
        "echo a > /light/f; for i in 1 2 3; do cat /light/f > /light/$i & done; wait; cat /light/[0-9]";
    let done = started_by(program, &["deny", PTRACE, EPERM], script)?;
    ensure!(done == ("exit 0".to_owned(), "a\na\na\n".to_owned()), "{done:?}");
    Ok(())
}

/// Calls that a run needs: the number and the name.
const NEEDED: [(&str, &str); 9] = [
    ("324", "membarrier"),
    ("72", "fcntl"),
    ("28", "madvise"),
    ("297", "rt_tgsigqueueinfo"),
    ("322", "execveat"),
    ("73", "flock"),
    ("77", "ftruncate"),
    ("99", "sysinfo"),
    ("137", "statfs"),
];
/// Calls that a run does without.
const TRIED: [(&str, &str); 7] = [
    ("332", "statx"),
    ("437", "openat2"),
    ("138", "fstatfs"),
    ("27", "mincore"),
    ("95", "umask"),
    ("41", "socket"),
    ("49", "bind"),
];

/// A run without a call that it needs refuses to start and says so, whether the filter returns an errno or
/// kills. One that it does without must not kill.
fn filter_that_denies(program: &Path) -> Result<()> {
    let needed = NEEDED.iter().flat_map(|(call, name)| [(call, name, EPERM), (call, name, KILL)]);
    let tried = TRIED.iter().map(|(call, name)| (call, name, KILL));
    for (call, name, action) in needed.chain(tried) {
        let (status, said) = started_by(program, &["deny", call, action], "echo a > /light/f")?;
        let clear = said.lines().count() == 1 && said.contains(&format!("denies {name}(2)"));
        ensure!(status == "exit 126" && clear, "{name}, {action}: {status}: {said}");
    }
    for (call, name) in TRIED {
        let script = "echo a > /light/f; mkdir /light/d; cat /light/f; rm -r /light/*";
        let done = started_by(program, &["deny", call, EPERM], script)?;
        ensure!(done == ("exit 0".to_owned(), "a\n".to_owned()), "{name}: {done:?}");
    }
    Ok(())
}

/// An instance of io_uring does not get into a run.
fn ring_from_outside(program: &Path) -> Result<()> {
    let script = "readlink /proc/self/fd/9 || echo none";
    let without = Command::new(program).args(["ring", "sh", "-c", script]).output()?;
    if !String::from_utf8_lossy(&without.stdout).contains("io_uring") {
        bail!("no io_uring on this machine: {without:?}");
    }
    let done = started_by(program, &["ring"], script)?;
    ensure!(done == ("exit 0".to_owned(), "none\n".to_owned()), "{done:?}");
    Ok(())
}
