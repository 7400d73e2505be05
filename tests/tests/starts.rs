//! What the start of a process costs in page faults, which are much of its time, beside the kernel's own file
//! system: `tests/programs/faults.c`.

use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::{binary, compile, suite};

/// What a child does.
struct Kind {
    name: &'static str,
    /// Faults of the child beyond those of one on tmpfs.
    of_a_child: i64,
    /// The same of its parent.
    of_a_parent: i64,
}

/// The child only ends: the gate's page, the header of the region, the child's lane, and one window of the
/// gate's text, or two where the loader has put it across the end of one.
const FORK: Kind = Kind { name: "fork", of_a_child: 6, of_a_parent: 3 };
/// The child opens a file and executes cat, which reads another: in each of the two images some five windows
/// of the gate's text, and one page for each kind of record.
const START: Kind = Kind { name: "start", of_a_child: 56, of_a_parent: 3 };
/// Runs of which the one with the fewest faults counts: the kernel maps 64 KiB around a page that is touched
/// first, and where libraries lie in them differs.
const RUNS: usize = 7;

fn main() -> ExitCode {
    let trial = |kind: &'static Kind| {
        let run = || faults(kind).map_err(|error| Failed::from(format!("{error:#}")));
        Trial::test(format!("faults_of_a_{}", kind.name), run)
    };
    suite::run(Ok(vec![trial(&FORK), trial(&START)]))
}

fn faults(kind: &Kind) -> Result<()> {
    let place = Place::new()?;
    let [kernel, here] = [fewest(&place, Door::Kernel, kind)?, fewest(&place, Door::Lightpath, kind)?];
    let more = [here[0] - kernel[0], here[1] - kernel[1]];
    ensure!(
        more[0] <= kind.of_a_child && more[1] <= kind.of_a_parent,
        "{here:?} faults; on tmpfs {kernel:?}"
    );
    Ok(())
}

fn fewest(place: &Place, door: Door, kind: &Kind) -> Result<[i64; 2]> {
    let program = compile::compile("faults")?;
    let mut all = Vec::new();
    for run in 0..RUNS {
        all.push(counted(&program, &place.of(door).join(run.to_string()), door, kind)?);
    }
    all.into_iter().min().context("no run")
}

/// The faults of a child and of its parent.
fn counted(program: &Path, mount: &Path, door: Door, kind: &Kind) -> Result<[i64; 2]> {
    let mut command = door.command(mount, "64M", program)?;
    command
        .arg(mount)
        .arg(kind.name)
        .env("XDG_CACHE_HOME", binary::cache_home()?)
        // Cargo sets it, and the gate would be preloaded then.
        .env_remove("LD_LIBRARY_PATH")
        // As on a machine that answers CPUID at once; an outline has faults of its own.
        .env("LIGHTPATH_OUTLINES", "never")
        .current_dir("/")
        .stdin(Stdio::null());
    let output = command.output()?;
    ensure!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout)?;
    let (child, parent) = said.trim().split_once(' ').context("no two numbers")?;
    Ok([child.parse()?, parent.parse()?])
}
