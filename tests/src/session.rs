//! One session: a command run in the same directory of both doors.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::door::{Door, Place};
use crate::outcome::{self, Outcome};
use crate::{binary, compile, process, program};

/// Enters the session's directory, runs the command (`"$@"`) there and lists what it left. The directory is
/// one below the mount, so that it is not sticky.
const PRELUDE: &str = r#"
umask 022
mkdir -m 755 "$M/t" && cd "$M/t" || exit 99
export T="$M/t"
"$@"
status=$?
cd "$T" && "$TREE" . >"$OUT/tree" || exit 98
exit $status
"#;

/// A command and what it needs.
#[derive(Clone, Debug)]
pub struct Session {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// Programs that must be installed.
    pub needs: Vec<String>,
    /// Exit status on the kernel; anything else there is a mistake in the session.
    pub exit: i32,
    /// Limit for each of the two runs.
    pub limit: Duration,
    /// `--size` of the mount.
    pub size: String,
    /// Whether programs of the host are executed by outlines, wherever the tests run.
    pub outlines: bool,
    /// Whether the mounts of both doors appear on one file system of the host.
    pub beside: bool,
    /// The door under test, if not that of the environment.
    pub door: Option<Door>,
}

impl Session {
    /// A session of one program and its arguments, that should end with status 0 within a minute.
    pub fn new<I>(command: I) -> Session
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Session {
            command: command.into_iter().map(Into::into).collect(),
            needs: Vec::new(),
            exit: 0,
            limit: Duration::from_secs(60),
            size: "1G".to_owned(),
            outlines: true,
            beside: false,
            door: None,
        }
    }

    /// Runs it on the kernel and on the door under test; an error tells the differences. Some results of the
    /// kernel depend on what goes on beside (openat2(2)'s EAGAIN, a program that starts slowly), so what it
    /// gives when it is asked once more is right as well.
    pub fn compare(&self) -> Result<()> {
        program::require(&self.needs.iter().map(String::as_str).collect::<Vec<_>>())?;
        let place = if self.beside { Place::beside()? } else { Place::new()? };
        let kernel = self.on_kernel(&place)?;
        let tested = self.run(self.door.map_or_else(Door::tested, Ok)?, &place)?;
        match tested.differences(&kernel) {
            None => Ok(()),
            Some(_) if tested == self.on_kernel(&place)? => Ok(()),
            Some(report) => bail!("{report}"),
        }
    }

    /// What is right.
    fn on_kernel(&self, place: &Place) -> Result<Outcome> {
        let kernel = self.run(Door::Kernel, place)?;
        self.check(&kernel)?;
        Ok(kernel)
    }

    /// One run, in the directory `m/t` of the door's place.
    fn run(&self, door: Door, place: &Place) -> Result<Outcome> {
        let host = tempfile::tempdir()?;
        let mount = place.of(door).join("m");
        let marker = format!("LP_TESTS_SESSION={}", place.of(door).display());
        let mut command = door.command(&mount, &self.size, "/bin/bash")?;
        command.args(["--norc", "--noprofile", "-c", PRELUDE, "session"]).args(&self.command);
        environment(&mut command, &marker, &mount, host.path())?;
        command.env("LIGHTPATH_OUTLINES", if self.outlines { "always" } else { "never" });
        command.stdin(Stdio::null());
        command.stdout(std::fs::File::create(host.path().join("stdout"))?);
        command.stderr(std::fs::File::create(host.path().join("stderr"))?);
        let status = process::run(&mut command, self.limit);
        let left_running = process::reap(&marker);
        door.close(&mount)?;
        let part = |name: &str| {
            let written = outcome::read_part(&host.path().join(name));
            outcome::rename(written, place.of(door), place.of(Door::Kernel))
        };
        Ok(Outcome {
            status: status?,
            stdout: part("stdout"),
            stderr: part("stderr"),
            tree: part("tree"),
            left_running,
        })
    }

    /// A session that does not do on the kernel what it is meant to do would compare nothing.
    fn check(&self, kernel: &Outcome) -> Result<()> {
        let missing = String::from_utf8_lossy(&kernel.stderr).contains("command not found");
        if kernel.status == format!("exit {}", self.exit) && kernel.left_running.is_empty() && !missing {
            return Ok(());
        }
        bail!(
            "the session is wrong: on the kernel it ended with {}, left running {:?}, and said\n{}{}",
            kernel.status,
            kernel.left_running,
            String::from_utf8_lossy(&kernel.stdout),
            String::from_utf8_lossy(&kernel.stderr)
        )
    }
}

/// The same small environment on both doors. `$M` is the mount, `$OUT` a directory of the host.
fn environment(command: &mut Command, marker: &str, mount: &Path, host: &Path) -> Result<()> {
    let (name, value) = marker.split_once('=').context("marker")?;
    command.current_dir("/").env_clear().env(name, value);
    command.env("PATH", program::search_path()).env("LC_ALL", "C").env("TZ", "UTC").env("TERM", "dumb");
    command.env("HOME", host).env("XDG_CACHE_HOME", binary::cache_home()?).env("LIGHTPATH", mount);
    command.env("M", mount).env("OUT", host).env("TREE", compile::compile("tree")?);
    for kept in ["RUSTUP_HOME", "CARGO_HOME"] {
        if let Some(value) = std::env::var_os(kept) {
            command.env(kept, value);
        }
    }
    if std::env::var_os("CARGO_HOME").is_none()
        && let Some(home) = std::env::var_os("HOME")
    {
        command.env("CARGO_HOME", Path::new(&home).join(".cargo"));
        command.env("RUSTUP_HOME", Path::new(&home).join(".rustup"));
    }
    Ok(())
}
