//! Random sequences of calls over a host tree, compared call by call with the same on the kernel, and the
//! tree that applying them leaves.
//!
//! One sequence fills the tree on the host. A second and a third, each in a run of its own of the session, go
//! on over it. How much the first does decides how much of the layer below is there to be touched.
//! `LP_TESTS_SEEDS=FROM..TO` selects other seeds.

use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::outcome::{self, Outcome};
use lp_tests::{binary, compile, copy, process, suite};

/// Steps of the sequence on the host and of those over it: nothing below but the directory, half, and nearly
/// all of it below.
const MIXES: [(&str, [u32; 3]); 3] =
    [("above", [0, 500, 200]), ("half", [300, 300, 200]), ("below", [800, 60, 20])];

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    for seed in seeds()? {
        // Every third runs without privileges, and the host tells it less than its own tree would.
        for (mix, steps) in MIXES.iter().filter(|_| seed % 3 != 2) {
            let test = move || compare(seed, *steps).map_err(|error| Failed::from(format!("{error:#}")));
            // What an unprivileged caller has made unreadable, it cannot take in.
            let is_root = rustix::process::geteuid().is_root();
            trials.push(Trial::test(format!("{mix}_{seed}"), test).with_ignored_flag(!is_root));
        }
    }
    Ok(trials)
}

fn seeds() -> Result<Range<u32>> {
    let Ok(text) = std::env::var("LP_TESTS_SEEDS") else { return Ok(0..12) };
    let (from, to) = text.split_once("..").context("LP_TESTS_SEEDS is FROM..TO")?;
    Ok(from.parse()?..to.parse()?)
}

/// A tree and what reaches it.
struct Side<'p> {
    door: Door,
    place: &'p Place,
    state: &'p Path,
}

impl Side<'_> {
    fn tree(&self) -> std::path::PathBuf {
        self.place.of(self.door).join("t")
    }

    /// Runs a program in the tree, through the door; what it prints.
    fn run<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Result<Outcome> {
        let mut command = match self.door {
            Door::Kernel => Command::new("env"),
            _ => {
                let mut command = Command::new(binary::lightpath()?);
                command.args(["run", "--over", ".", "--"]);
                command
            }
        };
        command.args(args).current_dir(self.tree());
        self.outcome(&mut command)
    }

    fn outcome(&self, command: &mut Command) -> Result<Outcome> {
        let written = tempfile::tempdir()?;
        let marker = format!("LP_TESTS_SESSION={}", self.tree().display());
        command.env("XDG_STATE_HOME", self.state).env("XDG_CACHE_HOME", binary::cache_home()?);
        command.env("LP_TESTS_SESSION", self.tree()).stdin(Stdio::null());
        command.stdout(std::fs::File::create(written.path().join("stdout"))?);
        command.stderr(std::fs::File::create(written.path().join("stderr"))?);
        let status = process::run(command, Duration::from_secs(60));
        let left_running = process::reap(&marker);
        let part = |name: &str| {
            let text = outcome::read_part(&written.path().join(name));
            outcome::rename(text, self.place.of(self.door), self.place.of(Door::Kernel))
        };
        Ok(Outcome {
            status: status?,
            stdout: part("stdout"),
            stderr: part("stderr"),
            tree: Vec::new(),
            left_running,
        })
    }
}

fn compare(seed: u32, [below, first, second]: [u32; 3]) -> Result<()> {
    let (fuzz, tree) = (compile::compile("fuzz")?, compile::compile("tree")?);
    let (place, state) = (Place::new()?, tempfile::tempdir()?);
    let side = |door| Side { door, place: &place, state: state.path() };
    let (kernel, over) = (side(Door::Kernel), side(Door::Over));
    ensure!(kernel.tree() != over.tree(), "the host has no tmpfs but the one below which a tree may be");
    std::fs::create_dir(kernel.tree())?;
    let number = |number: u32| number.to_string();
    let filled = kernel.run([fuzz.as_os_str(), number(seed).as_ref(), number(below).as_ref()])?;
    ensure!(filled.status == "exit 0", "the host's tree: {}", filled.status);
    copy::tree(&kernel.tree(), &over.tree())?;
    // Another seed of the same kind.
    for (index, steps) in [(1, first), (2, second)] {
        let seed = number(seed + 3000 * index);
        let command =
            [fuzz.as_os_str(), seed.as_ref(), number(steps).as_ref(), "on".as_ref()].map(OsStr::to_owned);
        same(&format!("sequence {index}"), &kernel.run(&command)?, &over.run(&command)?)?;
    }
    let listed = kernel.run([tree.as_os_str(), ".".as_ref()])?;
    same("the tree in the session", &listed, &over.run([tree.as_os_str(), ".".as_ref()])?)?;
    let mut apply = Command::new(binary::lightpath()?);
    let applied = over.outcome(apply.arg("apply").current_dir(over.tree()))?;
    ensure!(applied.status == "exit 0", "apply: {}", String::from_utf8_lossy(&applied.stderr));
    let mut list = Command::new(tree);
    same("the tree after apply", &listed, &over.outcome(list.arg(".").current_dir(over.tree()))?)
}

fn same(what: &str, kernel: &Outcome, over: &Outcome) -> Result<()> {
    match over.differences(kernel) {
        None => Ok(()),
        Some(report) => bail!("{what}:\n{report}"),
    }
}
