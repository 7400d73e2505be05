//! Storms through the gate: processes that kill, stop, signal and exec each other on a mount, and check what
//! they see.
//!
//! Each mode of `tests/programs/storm` runs on a tmpfs first, where it must find nothing wrong, then on a
//! mount, and also in a region file that is reopened afterwards if that can show more. `LP_STORM_SECONDS=N`
//! sets the length of the mixed storm, `LP_STORM_SEED=N` its random seed, `LP_STORM_FULL=1` selects the
//! counts of a manual run.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libtest_mimic::{Arguments, Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::host::{self, Kept};
use lp_tests::{binary, compile, outcome, process, program};

/// A mode of the program.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    /// Parameters in CI, and in a manual run.
    short: &'static str,
    full: &'static str,
    region: Region,
}

/// Where a mount's content is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    Memory,
    /// In a file, which a second run opens to check for leftovers.
    File,
}

const fn mode(name: &'static str, short: &'static str, full: &'static str) -> Mode {
    Mode { name, short, full, region: Region::Memory }
}

const fn reopened(name: &'static str, short: &'static str, full: &'static str) -> Mode {
    Mode { name, short, full, region: Region::File }
}

const MODES: &[Mode] = &[
    mode("forks", "forks=2000", "forks=60000"),
    mode("newborn", "kills=1200", "kills=20000"),
    mode("families", "seconds=2", "seconds=40"),
    mode("execs", "execs=400", "execs=10000"),
    mode("revoked-files", "rounds=8", "rounds=500"),
    mode("revoked-directories", "rounds=60", "rounds=2000"),
    mode("stopped", "tries=60", "tries=1000"),
    reopened("mounts", "tries=120", "tries=20000"),
    reopened("holders", "kills=1200", "kills=20000"),
    mode("waiters", "rounds=6", "rounds=60"),
    mode("halves", "kills=500", "kills=20000"),
    mode("halves-threads", "kills=500", "kills=20000"),
    mode("halves-apart", "kills=500", "kills=20000"),
    mode("bereaved", "rounds=5", "rounds=50"),
    reopened("leaks", "kills=300", "kills=20000"),
    reopened("mixed", "workers=24", "workers=48"),
];

/// For modes that are bounded by a count; the mode itself detects a hang much sooner.
const LIMIT: Duration = Duration::from_secs(300);
const FULL_LIMIT: Duration = Duration::from_secs(7200);
/// Length of the mixed storm in CI, on a mount, in seconds.
const SECONDS: u64 = 16;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each storm takes the whole machine.
    arguments.test_threads.get_or_insert(1);
    let trial = |mode: &'static Mode| {
        let run = move || mode.check().map_err(|error| Failed::from(format!("{error:#}")));
        Trial::test(mode.name, run)
    };
    libtest_mimic::run(&arguments, MODES.iter().map(trial).collect()).exit_code()
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

impl Mode {
    fn check(&self) -> Result<()> {
        program::require(&["cc", "unshare", "mount"])?;
        let place = Place::new()?;
        self.run(&Storm::new(Door::Kernel, &place)?, self.name)?;
        let tested = Storm::new(Door::tested()?, &place)?;
        self.run(&tested, self.name)?;
        match self.region {
            Region::Memory => Ok(()),
            Region::File => self.run(&tested, "relock").context("in a run of its own afterwards"),
        }
    }

    fn parameters(&self, door: Door) -> Vec<String> {
        let full = from_environment("LP_STORM_FULL").is_some();
        // On the kernel a sample suffices to show that the program requires nothing that Linux does not
        // promise.
        let given = if full && door != Door::Kernel { self.full } else { self.short };
        let mut parameters: Vec<String> = given.split(' ').map(str::to_owned).collect();
        let share = if door == Door::Kernel { 10 } else { 1 };
        let seconds = from_environment("LP_STORM_SECONDS").unwrap_or(SECONDS) / share;
        if self.name == "mixed" {
            parameters.push(format!("seconds={}", seconds.max(3)));
        }
        if door == Door::Kernel && !host::can_be_read_only() {
            // Other processes use this tmpfs too, so its free space is meaningless.
            parameters.push("shared=1".to_owned());
        }
        parameters.push(format!("seed={}", from_environment("LP_STORM_SEED").unwrap_or(1)));
        parameters
    }

    fn run(&self, storm: &Storm, mode: &str) -> Result<()> {
        let mut arguments = vec![mode.to_owned(), storm.mount().display().to_string()];
        arguments.extend(self.parameters(storm.door));
        let limit = if from_environment("LP_STORM_FULL").is_some() { FULL_LIMIT } else { LIMIT };
        let limit = limit + Duration::from_secs(from_environment("LP_STORM_SECONDS").unwrap_or(0));
        storm.run(&arguments, self.region, limit).with_context(|| {
            format!("storm {} on {:?} (tests/programs/storm says what)", arguments.join(" "), storm.door)
        })
    }
}

/// A place for successive storms on one door.
struct Storm<'p> {
    door: Door,
    place: &'p Place,
    /// Host directory for a storm: a region file and its output.
    host: tempfile::TempDir,
}

impl Storm<'_> {
    fn new(door: Door, place: &Place) -> Result<Storm<'_>> {
        Ok(Storm { door, place, host: tempfile::tempdir()? })
    }

    fn mount(&self) -> PathBuf {
        self.place.of(self.door).join("m")
    }

    /// Runs the program with these arguments; the error contains its complaints.
    fn run(&self, arguments: &[String], region: Region, limit: Duration) -> Result<()> {
        let mut command = self.command(region)?;
        let marker = format!("LP_TESTS_SESSION={}", self.mount().display());
        let (name, value) = marker.split_once('=').context("marker")?;
        command.args(arguments).env(name, value).env("XDG_CACHE_HOME", binary::cache_home()?);
        let part = |name: &str| self.host.path().join(name);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(std::fs::File::create(part("stdout"))?);
        command.stderr(std::fs::File::create(part("stderr"))?);
        let status = process::run(&mut command, limit)?;
        let left = process::reap(&marker);
        let figures = outcome::read_part(&part("stdout"));
        let figures = String::from_utf8_lossy(&figures);
        println!("{:?}: {}", self.door, figures.trim_end());
        self.door.close(&self.mount())?;
        if status == "exit 0" && left.is_empty() {
            return Ok(());
        }
        let complaints = outcome::read_part(&part("stderr"));
        bail!("{status}, left running {left:?}\n{figures}{}", String::from_utf8_lossy(&complaints))
    }

    fn command(&self, region: Region) -> Result<Command> {
        let program = compile::compile("storm")?;
        let mount = self.mount();
        let mut command = self.door.command(&mount, "1G", &program)?;
        if self.door == Door::Lightpath && region == Region::File {
            command = Command::new(binary::lightpath()?);
            command.arg("run").arg("--at").arg(&mount).arg("--region").arg(self.host.path().join("region"));
            command.arg("--").arg(&program);
        }
        let scratch = binary::scratch_dir()?;
        let mut kept = vec![Kept::Directory(&scratch), Kept::Directory(self.host.path())];
        if self.door == Door::Kernel {
            kept.push(Kept::Tmpfs(&mount));
        }
        Ok(if host::can_be_read_only() { host::read_only(&command, &kept) } else { command })
    }
}
