//! A tree, a plain copy of it, and sessions over it.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Lists a tree: names, types, modes, owners, links, targets and content, of files also the times of change.
pub const LIST: &str = r#"
export LC_ALL=C
find . -mindepth 1 \( -type d -printf '%P %y %m %U %G\n' \) -o -printf '%P %y %m %U %G %s %n %l\n' | sort
find . -type f -size +0 -exec md5sum {} + | sort
"#;

/// A tree with something of everything.
pub const MAKE: &str = r#"
set -e
umask 022
mkdir -p a/b/c d/e keep/deep/er empty
echo one > a/one; echo two > a/b/two; echo three > a/b/c/three
seq 1 1000 > numbers; seq 1 200000 > d/large
head -c 3000000 /dev/zero | tr '\0' x > d/e/larger
ln a/one d/hard; ln -s ../../a/one d/e/soft; ln -s nowhere dangling; ln -s a alias
echo 'all: out' > Makefile; printf 'out: numbers\n\twc -l < numbers > out\n' >> Makefile
printf '#!/bin/sh\necho script in $(pwd | sed s,.*/,,)\n' > run.sh; chmod 755 run.sh
chmod 600 a/b/two; chmod 700 d/e; mkfifo pipe
echo keep > keep/file; touch -d 2001-02-03T04:05:06.789 keep/file keep/deep; : > keep/nothing
printf 'x' > "$(printf 'a/not\377utf8')"; printf y > 'a/with blank'; printf z > "$(printf 'a/new\nline')"
"#;

/// A tree, a copy of it, and a place for sessions.
pub struct Trees {
    pub home: TempDir,
}

impl Trees {
    pub fn new(make: &str) -> Trees {
        let trees = Trees { home: TempDir::new().unwrap() };
        fs::create_dir(trees.tree()).unwrap();
        sh(&trees.tree(), make);
        let copied = Command::new("cp").arg("-a").args([trees.tree(), trees.copy()]).status().unwrap();
        assert!(copied.success());
        trees
    }

    pub fn tree(&self) -> PathBuf {
        self.home.path().join("tree")
    }

    pub fn copy(&self) -> PathBuf {
        self.home.path().join("copy")
    }

    pub fn lightpath(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lightpath"));
        command.args(args).current_dir(self.tree()).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.home.path().join("state"));
        command
    }

    /// The command where another user reaches it, who may not where it was built. cp(1) writes it: a
    /// descriptor of the test's own would be inherited by what other tests start meanwhile.
    pub fn reachable(&self) -> PathBuf {
        let copy = self.home.path().join("lightpath");
        if !copy.exists() {
            sh(self.home.path(), &format!("cp '{}' lightpath", env!("CARGO_BIN_EXE_lightpath")));
        }
        copy
    }

    /// [`Trees::lightpath`] for another user, whose home and sessions are in `state`.
    pub fn lightpath_as(&self, user: u32, state: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(self.reachable());
        command.args(args).current_dir(self.tree()).stdin(Stdio::null());
        command.env("HOME", state).env("XDG_STATE_HOME", state).uid(user).gid(user);
        command
    }

    /// Runs a script over the tree; what it prints.
    pub fn over(&self, script: &str) -> String {
        let output = self.lightpath(&["run", "--over", ".", "--", "sh", "-c", script]).output().unwrap();
        said(&output)
    }

    /// Runs a script over the tree that creates the file `$READY` and then reads a line from standard input;
    /// meanwhile the host changes. What it prints.
    pub fn beside(&self, script: &str, change: &str) -> String {
        let ready = self.home.path().join("ready");
        let mut command = self.lightpath(&["run", "--over", ".", "--", "sh", "-c", script]);
        command.env("READY", &ready).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut run = command.spawn().unwrap();
        let start = Instant::now();
        while !ready.exists() {
            assert!(run.try_wait().unwrap().is_none(), "{script} has ended");
            assert!(start.elapsed() < Duration::from_secs(60), "{script} does not begin");
            thread::sleep(Duration::from_millis(5));
        }
        // The host's clock of change times may have ticks.
        thread::sleep(Duration::from_millis(20));
        sh(&self.tree(), change);
        run.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let output = run.wait_with_output().unwrap();
        fs::remove_file(ready).unwrap();
        said(&output)
    }

    pub fn says(&self, args: &[&str]) -> String {
        said(&self.lightpath(args).output().unwrap())
    }

    /// What a command that must fail says: one line.
    pub fn fails(&self, args: &[&str]) -> String {
        let output = self.lightpath(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{args:?} succeeded: {text}");
        text
    }
}

/// Runs a program of Python's. Its standard input is at descriptor 3.
pub fn python(script: &str) -> String {
    format!(
        "exec 3<&0; python3 - <<'END'\nimport ctypes, hashlib, mmap, os, signal, socket, sys\n{script}\nEND\n"
    )
}

/// What a program of Python's does to wait for the change in [`Trees::beside`].
pub const WAIT: &str = "open(os.environ['READY'], 'w').close()\nos.read(3, 1)\n";

/// Whether a test that needs root may run; says so if not.
pub fn is_root() -> bool {
    // SAFETY: asks for the user.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        println!("skipped: root is needed");
    }
    is_root
}

pub fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

pub fn sh(at: &Path, script: &str) -> String {
    said(&Command::new("sh").args(["-c", script]).current_dir(at).stdin(Stdio::null()).output().unwrap())
}

/// All that is to be seen of a tree but access times.
pub fn state(at: &Path) -> String {
    sh(
        at,
        "export LC_ALL=C; find . -printf '%P %y %m %U %G %s %n %i %l %T@ %C@\n' | sort; find . -type f -exec md5sum {} + | sort",
    )
}

impl Trees {
    /// The name of the tree's session.
    pub fn session(&self) -> String {
        self.tree().to_str().unwrap()[1..].replace('/', "+")
    }
}

/// The stop at which a test that kills begins, and how many it goes on each time: what the test says, or
/// `LP_TESTS_KILLS=FIRST,STEP`. Where the command ends, [`stopped_at`] says.
pub fn kills(first: usize, step: usize) -> (usize, usize) {
    let given = std::env::var("LP_TESTS_KILLS").ok();
    given.map_or((first, step), |text| {
        let (first, step) = text.split_once(',').expect("LP_TESTS_KILLS is FIRST,STEP");
        (first.parse().unwrap(), step.parse().unwrap())
    })
}

/// Starts a command traced and lets it go on to its `calls`th stop at a system call; none if it ended before.
pub fn stopped_at(command: &mut Command, calls: usize) -> Option<libc::pid_t> {
    let stopped = followed(command, calls);
    if let Err(stops) = stopped {
        println!("ended at stop {stops}");
    }
    stopped.ok()
}

/// The number of a command's stops at system calls.
pub fn stops(command: &mut Command) -> usize {
    followed(command, usize::MAX).expect_err("it ends")
}

/// [`stopped_at`]; or the number of its stops.
#[allow(clippy::zombie_processes, reason = "it is waited for by waitpid(2), which tells of stops")]
fn followed(command: &mut Command, calls: usize) -> Result<libc::pid_t, usize> {
    // SAFETY: ptrace(2) and nothing else happens in the child.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id() as libc::pid_t;
    let (mut left, mut status) = (calls, 0);
    loop {
        // SAFETY: the child is this test's own and not reaped yet.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return Err(calls - left);
        }
        if left == 0 {
            return Ok(pid);
        }
        left -= 1;
        let signal = match libc::WSTOPSIG(status) {
            libc::SIGTRAP => 0,
            signal => signal,
        };
        // SAFETY: the child has stopped.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, signal) };
    }
}

/// Kills what [`stopped_at`] gave.
pub fn kill(pid: libc::pid_t) {
    // SAFETY: a child of the test's own, not reaped yet.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
}

/// Starts a command traced, kills it at its `calls`th stop at a system call; whether it ended before.
pub fn killed_at(command: &mut Command, calls: usize) -> bool {
    let stopped = stopped_at(command, calls);
    stopped.map(kill).is_none()
}
