//! What the start of a process costs in page faults, which are much of its time, beside the kernel's own file
//! system: `tests/programs/faults.c`.

use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::{binary, compile, suite};

/// Faults of a child that only ends, beyond those of one on tmpfs: the gate's page, the header of the region,
/// the child's lane, and one window of the gate's text, or two where the loader has put it across the end of
/// one.
const OF_A_CHILD: i64 = 6;
/// The same of its parent.
const OF_A_PARENT: i64 = 3;
/// Runs of which the one with the fewest faults counts: the kernel maps 64 KiB around a page that is touched
/// first, and where libraries lie in them differs.
const RUNS: usize = 7;

fn main() -> ExitCode {
    let run = || faults_of_a_fork().map_err(|error| Failed::from(format!("{error:#}")));
    suite::run(Ok(vec![Trial::test("faults_of_a_fork", run)]))
}

fn faults_of_a_fork() -> Result<()> {
    let place = Place::new()?;
    let [kernel, here] = [fewest(&place, Door::Kernel)?, fewest(&place, Door::Lightpath)?];
    let more = [here[0] - kernel[0], here[1] - kernel[1]];
    ensure!(more[0] <= OF_A_CHILD && more[1] <= OF_A_PARENT, "{here:?} faults; on tmpfs {kernel:?}");
    Ok(())
}

fn fewest(place: &Place, door: Door) -> Result<[i64; 2]> {
    let program = compile::compile("faults")?;
    let mut all = Vec::new();
    for run in 0..RUNS {
        all.push(counted(&program, &place.of(door).join(run.to_string()), door)?);
    }
    all.into_iter().min().context("no run")
}

/// The faults of a child and of its parent.
fn counted(program: &Path, mount: &Path, door: Door) -> Result<[i64; 2]> {
    let mut command = door.command(mount, "64M", program)?;
    command.arg(mount).env("XDG_CACHE_HOME", binary::scratch_dir()?).current_dir("/").stdin(Stdio::null());
    let output = command.output()?;
    ensure!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout)?;
    let (child, parent) = said.trim().split_once(' ').context("no two numbers")?;
    Ok([child.parse()?, parent.parse()?])
}
