//! Starts the audited program and traces it.

use crate::library::{self, Descriptors};
use crate::tracer::{Count, Tracer};
use anyhow::{Context, Result, bail};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SOURCE: &str = include_str!("../c/probe.c");
const NAME: &str = "probe";

/// How often each call is traced; most counts must agree.
const REPETITIONS: usize = 5;

/// The calls that the probe can make.
pub const CALLS: &[&str] = &[
    "lseek",
    "lseek_end",
    "fstat",
    "read_1",
    "pread_1",
    "pread_4k",
    "readv",
    "preadv",
    "write_256",
    "pwrite_1",
    "writev",
    "pwritev",
    "stat",
    "lstat",
    "statx",
    "stat_missing",
    "access",
    "faccessat",
    "open_close",
    "create_unlink",
    "unlink_open",
    "rename",
    "rename_over",
    "getdents",
    "host_lseek",
    "host_fstat",
    "host_stat",
    "host_lstat",
    "host_statx",
    "host_stat_missing",
    "host_access",
    "host_access_missing",
    "host_access_crooked",
    "host_readlink",
    "host_open_close",
    "host_open_missing",
    "sigaction",
];

/// Where the probe works.
#[derive(Debug, Clone)]
pub enum Ground {
    /// In a directory of a kernel file system.
    Directory(PathBuf),
    /// In a run by this command, on a mount of its own.
    Lightpath(PathBuf),
    /// Through the library door, by this `lp-audit`.
    Library(PathBuf),
}

impl Ground {
    /// The calls that can be audited here.
    #[must_use]
    pub fn calls(&self) -> Vec<&'static str> {
        match self {
            Self::Directory(_) | Self::Lightpath(_) => CALLS.to_vec(),
            Self::Library(_) => library::names(),
        }
    }
}

/// The probe's binary, compiled by the host's `cc`.
pub struct Probe {
    dir: tempfile::TempDir,
    ground: Ground,
    descriptors: Descriptors,
}

impl Probe {
    /// Compiles the probe.
    ///
    /// # Errors
    /// If there is no C compiler, or nowhere to put its output.
    pub fn new(ground: Ground, descriptors: Descriptors) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("lightpath-audit-").tempdir()?;
        let source = dir.path().join("probe.c");
        std::fs::write(&source, SOURCE)?;
        let output = Command::new("cc")
            .args(["-std=gnu11", "-O2", "-pthread", "-o"])
            .args([&dir.path().join(NAME), &source])
            .output()
            .context("cannot run cc, which compiles the probe")?;
        if !output.status.success() {
            bail!("cc cannot compile the probe: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(Self { dir, ground, descriptors })
    }

    /// What `call` executes when warm: the lowest of several counts, which are equal unless something
    /// interferes.
    ///
    /// # Errors
    /// If the probe fails, or cannot be traced.
    pub fn audit(&self, call: &str) -> Result<Audit> {
        let mut audits = self.trace(&[call])?;
        audits.pop().context("no count")
    }

    /// The same for two commuting calls at once, each in a process of its own.
    ///
    /// # Errors
    /// As for [`Self::audit`].
    pub fn audit_pair(&self, first: &str, second: &str) -> Result<[Audit; 2]> {
        let audits = self.trace(&[first, second])?;
        <[Audit; 2]>::try_from(audits).map_err(|audits| anyhow::anyhow!("{} counts of two", audits.len()))
    }

    fn trace(&self, calls: &[&str]) -> Result<Vec<Audit>> {
        let room = match &self.ground {
            Ground::Directory(base) => {
                Some(tempfile::Builder::new().prefix("lightpath-audit-").tempdir_in(base)?)
            }
            Ground::Lightpath(_) | Ground::Library(_) => None,
        };
        let mut child = Running(self.command(room.as_ref().map(|room| room.path()), calls).spawn()?);
        let output = child.0.stdout.take().context("the probe has no output")?;
        // The first call's process is the parent of the second's; either may be ready first.
        let mut ready: Vec<i32> = Vec::new();
        for line in BufReader::new(output).lines() {
            let line = line?;
            let pid = line.strip_prefix("ready ").and_then(|pid| pid.parse().ok());
            ready.push(pid.with_context(|| format!("the probe says {line:?}"))?);
            if ready.len() == calls.len() {
                break;
            }
        }
        if ready.len() != calls.len() {
            let status = child.0.wait()?;
            bail!("the probe for {} ended before it was ready: {status}", calls.join(" and "));
        }
        if ready.len() == 2 && is_parent(ready[1], ready[0])? {
            ready.reverse();
        }
        // The C probe's own instructions do not count; those of the library are in the program that makes the
        // calls.
        let probe = match self.ground {
            Ground::Directory(_) | Ground::Lightpath(_) => Some(NAME),
            Ground::Library(_) => None,
        };
        let audits: Result<Vec<_>> = ready.into_iter().map(|pid| repeat(Pid::from_raw(pid), probe)).collect();
        let audits = audits.with_context(|| format!("cannot audit {}", calls.join(" and ")))?;
        let status = child.0.wait()?;
        if !status.success() {
            bail!("the probe for {} ended with {status}", calls.join(" and "));
        }
        Ok(audits)
    }

    fn command(&self, room: Option<&Path>, calls: &[&str]) -> Command {
        let program = self.dir.path().join(NAME);
        let mut command = match &self.ground {
            Ground::Directory(_) => Command::new(program),
            Ground::Lightpath(launcher) => {
                let mut command = Command::new(launcher);
                command.args(["run", "--at", "/light", "--"]).arg(program);
                command
            }
            Ground::Library(audit) => {
                let mut command = Command::new(audit);
                command.arg("perform");
                command
            }
        };
        let is_library = matches!(self.ground, Ground::Library(_));
        if self.descriptors == Descriptors::Shared {
            command.arg(if is_library { "--threads" } else { "-t" });
        }
        if !is_library {
            command.arg(room.unwrap_or(Path::new("/light")));
        }
        command.arg(REPETITIONS.to_string()).args(calls);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// Several counts of one call.
#[derive(Debug, Clone)]
pub struct Audit {
    /// The lowest count.
    pub count: Count,
    /// Instructions of each repetition.
    pub totals: Vec<usize>,
}

impl Audit {
    /// Instructions that a call executes more if the clock has ticked since the call before it: a write then
    /// stores times. How often it ticks between them depends on what else the machine does.
    const TICK: usize = 16;

    /// Whether most repetitions executed the lowest number of instructions, plus or minus the few by which
    /// the clock of the C library or the kernel varies: one in many calls may do some upkeep.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        let least = self.count.total();
        let most = least + (least / 20).max(Self::TICK);
        self.totals.iter().filter(|total| **total <= most).count() * 2 > self.totals.len()
    }
}

fn repeat(pid: Pid, probe: Option<&str>) -> Result<Audit> {
    let mut tracer = Tracer::seize(pid)?;
    let mut counts = Vec::new();
    for repetition in 0..REPETITIONS {
        if repetition > 0 {
            tracer.run_to_breakpoint()?;
        }
        counts.push(tracer.count(probe)?);
    }
    tracer.release()?;
    let totals = counts.iter().map(Count::total).collect();
    let count = counts.into_iter().min_by_key(Count::total).context("no repetition")?;
    Ok(Audit { count, totals })
}

/// Whether `parent` is the parent of `child`, by proc_pid_stat(5).
fn is_parent(parent: i32, child: i32) -> Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat"))?;
    let fields = stat.rsplit_once(") ").context("cannot read the probe's status")?.1;
    Ok(fields.split(' ').nth(1) == Some(parent.to_string().as_str()))
}

/// The probe; ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has already ended, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
