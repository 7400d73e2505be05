//! Children with a time limit, and the processes that outlive a session.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How a child ended, in words: they are compared, and shown.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => format!("{status:?}"),
    }
}

/// Runs `command` in a process group of its own; when the limit passes standard error tells where its
/// processes stand, and the group is killed.
pub fn run(command: &mut Command, limit: Duration) -> Result<String> {
    let mut child = command.process_group(0).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(describe(status));
        }
        if Instant::now() >= end {
            eprintln!("after {limit:?} of {command:?}:\n{}", standing(Pid::from_child(&child)));
            // The group is ours: it was made for this child, which has not been waited for.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait()?;
            return Ok(format!("killed after {limit:?}"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// Processes of a group shown by [`standing`].
const SHOWN: usize = 20;

/// A line for each process of a group: its state, what it waits for in the kernel, and its system call.
fn standing(group: Pid) -> String {
    let Ok(entries) = std::fs::read_dir("/proc") else { return String::new() };
    let lines = entries.flatten().filter_map(|entry| {
        let part = |name: &str| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let stat = part("stat");
        // After the name, which may have any character in it: state, parent, group.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let of_group = fields.nth(1)?.parse() == Ok(group.as_raw_nonzero().get());
        let pid = entry.file_name().into_string().ok()?;
        of_group.then(|| format!("  {pid} {state} {}, call {}\n", part("wchan"), part("syscall").trim_end()))
    });
    lines.take(SHOWN).collect()
}

/// Kills what still runs with `marker` (`NAME=value`) in its environment, a moment after its session is over,
/// and names it.
pub fn reap(marker: &str) -> Vec<String> {
    let end = Instant::now() + Duration::from_secs(10);
    while !marked(marker).is_empty() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = marked(marker);
    for &(pid, _) in &left {
        let _ = kill_process(pid, Signal::KILL);
    }
    left.into_iter().map(|(_, name)| name).collect()
}

fn marked(marker: &str) -> Vec<(Pid, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| marked_pid(&entry.file_name().into_string().ok()?, marker)).collect()
}

fn marked_pid(name: &str, marker: &str) -> Option<(Pid, String)> {
    let pid = Pid::from_raw(name.parse().ok()?)?;
    let environment = std::fs::read(format!("/proc/{name}/environ")).ok()?;
    if !environment.split(|&byte| byte == 0).any(|entry| entry == marker.as_bytes()) {
        return None;
    }
    Some((pid, std::fs::read_to_string(format!("/proc/{name}/comm")).unwrap_or_default().trim().to_owned()))
}
