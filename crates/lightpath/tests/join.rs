//! `lightpath ps`, `top` and `exec`: what they find, what they join, whom they refuse.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn lightpath() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lightpath"))
}

/// A run whose command has written `/light/f` and lives until its standard input ends.
struct Live(Child);

impl Live {
    fn start(mut command: Command, options: &[&str]) -> Live {
        command.arg("run").args(options).args([
            "--",
            "sh",
            "-c",
            "echo hello > /light/f; echo ready; read line",
        ]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Live(child)
    }

    fn name(&self) -> String {
        self.0.id().to_string()
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }

    fn exec(&self, script: &str) -> Output {
        lightpath().args(["exec", &self.name(), "--", "sh", "-c", script]).output().unwrap()
    }
}

/// What `ps --json` says of the run that `live` is.
fn found(live: &Live) -> Option<serde_json::Value> {
    let output = lightpath().args(["ps", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let runs: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    runs.into_iter().find(|run| run["run"] == live.0.id())
}

fn pids(run: &serde_json::Value) -> Vec<u64> {
    run["processes"].as_array().unwrap().iter().map(|process| process["pid"].as_u64().unwrap()).collect()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The command failed with `status` and said one line that holds `says`.
fn refused(output: &Output, status: i32, says: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.lines().count()), (Some(status), 1), "{output:?}");
    assert!(text.contains(says), "{text}");
}

/// A copy of the command that every user can start, and the directory that goes with it.
fn for_everybody() -> (tempfile::TempDir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::Builder::new().prefix("lightpath-join").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("lightpath");
    std::fs::copy(env!("CARGO_BIN_EXE_lightpath"), &copy).unwrap();
    (dir, copy)
}

/// `program` as a user other than root.
fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command.env("HOME", "/nonexistent").env_remove("XDG_CACHE_HOME");
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn ps_shows_a_run_with_its_processes_and_its_space() {
    let live = Live::start(lightpath(), &["--size", "16M"]);
    let run = found(&live).unwrap();
    assert_eq!(run["mounts"], serde_json::json!(["/light"]), "{run}");
    assert_eq!((&run["file"], &run["limit"]), (&serde_json::Value::Null, &(16 << 20).into()), "{run}");
    assert!(run["used"].as_u64().unwrap() > 0 && run["calls"].is_null(), "{run}");
    assert_eq!(pids(&run), [u64::from(live.0.id())], "{run}");
    assert!(run["processes"][0]["command"].as_str().unwrap().starts_with("sh -c echo hello"), "{run}");
    let text = out(&lightpath().arg("ps").output().unwrap());
    let line = format!("run {}: /light in memory, ", live.name());
    assert!(text.lines().any(|shown| shown.starts_with(&line)), "{text}");
    live.end();
}

#[test]
fn ps_shows_what_is_counted_and_where_a_region_lies() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("region");
    let live = Live::start(lightpath(), &["--stats", "--size", "16M", "--region", file.to_str().unwrap()]);
    let run = found(&live).unwrap();
    assert_eq!(run["file"], file.to_str().unwrap(), "{run}");
    assert!(run["calls"].as_u64().unwrap() > 0, "{run}");
    // The launcher waits beside the command.
    assert_eq!(pids(&run).len(), 2, "{run}");
    live.end();
}

#[test]
fn top_shows_calls_processes_and_files_of_a_run_at_work() {
    let mut run = lightpath()
        .args(["run", "--stats", "--", "sh", "-c", "while :; do echo hello > /light/f; done"])
        .process_group(0)
        .spawn()
        .unwrap();
    let mut top =
        lightpath().args(["top", "--json", "-d", "0.1", "-n", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(top.stdout.take().unwrap()).lines();
    // The first intervals may end before the run has begun.
    let at_work = lines.map_while(Result::ok).take(600).any(|line| {
        let runs: Vec<serde_json::Value> = serde_json::from_str(&line).unwrap();
        let Some(found) = runs.iter().find(|found| found["run"] == run.id()) else { return false };
        let processes = found["processes"].as_array().unwrap();
        let rate = |of: &serde_json::Value| of["calls"]["in_process"].as_f64().unwrap_or(0.0);
        let file = &found["files"][0];
        found["by_call"]["openat"]["in_process"].as_f64().unwrap_or(0.0) > 0.0
            && rate(found) > 0.0
            && processes.iter().any(|process| rate(process) > 0.0)
            && file["path"] == "/light/f"
            && file["changes"].as_f64().unwrap() > 0.0
    });
    top.kill().unwrap();
    top.wait().unwrap();
    // SAFETY: the group is that of the run, which this test has started and not waited for.
    unsafe { libc::kill(-(run.id() as i32), libc::SIGKILL) };
    run.wait().unwrap();
    assert!(at_work, "no report shows the run at work");
}

#[test]
fn top_says_what_it_needs() {
    refused(&lightpath().arg("top").output().unwrap(), 2, "top needs a terminal");
    refused(&lightpath().args(["top", "--json", "-d", "0"]).output().unwrap(), 2, "from 0.1 to 3600");
    refused(&lightpath().args(["top", "-n", "3"]).output().unwrap(), 2, "--count belongs to --json");
}

#[test]
fn exec_sees_the_files_of_the_run_and_the_run_sees_its() {
    let live = Live::start(lightpath(), &["--size", "16M"]);
    let joined = live.exec("cat /light/f; echo two > /light/g; exit 7");
    assert_eq!((joined.status.code(), &*out(&joined)), (Some(7), "hello\n"), "{joined:?}");
    assert_eq!(out(&live.exec("cat /light/g; rm /light/g")), "two\n");
    assert_eq!(out(&live.exec("ls /light")), "f\n");
    live.end();
}

#[test]
fn what_joined_keeps_the_run_after_its_command_has_ended() {
    let first = Live::start(lightpath(), &["--size", "16M"]);
    let mut joined = lightpath();
    joined.args(["exec", &first.name(), "--", "sh", "-c", "echo joined >> /light/f; echo ready; read line"]);
    let mut joined = joined.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    joined.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let mut both = vec![u64::from(first.0.id()), u64::from(joined.id())];
    let mut shown = pids(&found(&first).unwrap());
    both.sort_unstable();
    shown.sort_unstable();
    assert_eq!(shown, both);
    first.end();
    let joined = Live(joined);
    assert_eq!(pids(&found(&joined).unwrap()), [u64::from(joined.0.id())]);
    assert_eq!(out(&joined.exec("cat /light/f")), "hello\njoined\n");
    joined.end();
}

#[test]
fn two_runs_are_two() {
    let (one, other) =
        (Live::start(lightpath(), &["--size", "16M"]), Live::start(lightpath(), &["--size", "32M"]));
    assert_eq!(found(&one).unwrap()["limit"], 16 << 20);
    assert_eq!(found(&other).unwrap()["limit"], 32 << 20);
    assert!(one.exec("echo more > /light/only").status.success());
    assert_eq!(out(&other.exec("ls /light")), "f\n");
    one.end();
    assert_eq!(out(&other.exec("cat /light/f")), "hello\n");
    other.end();
}

#[test]
fn a_run_that_is_gone_or_none_gets_one_line() {
    let live = Live::start(lightpath(), &["--size", "16M"]);
    let name = live.name();
    live.end();
    let exec = |run: &str| lightpath().args(["exec", run, "--", "true"]).output().unwrap();
    refused(&exec(&name), 1, "gone");
    refused(&exec(&std::process::id().to_string()), 1, "takes part in no run");
    let live = Live::start(lightpath(), &["--size", "16M"]);
    refused(
        &live.exec(&format!("exec {} exec 1 -- true", env!("CARGO_BIN_EXE_lightpath"))),
        1,
        "already inside",
    );
    let status = lightpath().args(["exec", &live.name(), "--", "/none"]).output().unwrap();
    refused(&status, 127, "/none");
    live.end();
}

#[test]
fn another_users_run_is_refused() {
    if !is_root() {
        return;
    }
    let (_dir, copy) = for_everybody();
    let of_root = Live::start(lightpath(), &["--size", "16M"]);
    let join = |program: &mut Command, run: &Live| {
        program.args(["exec", &run.name(), "--", "true"]).output().unwrap()
    };
    refused(&join(&mut as_nobody(&copy), &of_root), 126, "another user's");
    let listed = as_nobody(&copy).args(["ps", "--json"]).output().unwrap();
    assert!(!out(&listed).contains(&format!("\"run\":{},", of_root.name())), "{listed:?}");
    of_root.end();

    // Root sees that it is there, and does not map what its user may truncate.
    let of_nobody = Live::start(as_nobody(&copy), &["--size", "16M"]);
    refused(&join(&mut lightpath(), &of_nobody), 126, "another user's");
    let run = found(&of_nobody).unwrap();
    assert_eq!((&run["user"], &run["mounts"]), (&65534.into(), &serde_json::Value::Null), "{run}");
    of_nobody.end();
}
