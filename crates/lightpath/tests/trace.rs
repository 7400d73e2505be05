//! `lightpath trace`: the lines and the table, held against strace(1)'s for the same program on the host.

use std::path::Path;
use std::process::{Command, Output};

fn trace(options: &[&str], command: &[&str]) -> Output {
    let mut lightpath = Command::new(env!("CARGO_BIN_EXE_lightpath"));
    lightpath.args(["trace", "--size", "64M"]).args(options).arg("--").args(command).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes calls below the directory that is its argument.
const PROGRAM: &str = r#"
import fcntl, os, signal, sys
d = sys.argv[1]
os.mkdir(d + "/dir", 0o750)
fd = os.open(d + "/dir/f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
os.write(fd, b"hello \"world\"\n\x01\x012" + b"a" * 40)
os.lseek(fd, 2, os.SEEK_SET)
os.read(fd, 3)
os.pread(fd, 4, 1)
os.ftruncate(fd, 5)
os.fsync(fd)
os.fchown(fd, -1, -1)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
for command, value in [(fcntl.F_GETFL, 0), (fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK), (fcntl.F_SETFD, 1), (fcntl.F_GETFD, 0)]:
    fcntl.fcntl(fd, command, value)
os.dup2(fd, 20, inheritable=False)
os.setxattr(d + "/dir/f", "user.a", b"value", os.XATTR_CREATE)
os.getxattr(d + "/dir/f", "user.a")
os.listxattr(d + "/dir/f")
os.mkfifo(d + "/dir/p", 0o600)
os.unlink(d + "/dir/p")
signal.signal(signal.SIGUSR1, lambda *_: None)
os.close(fd)
for path in ["/dir/f", "/none"]:
    try:
        os.stat(d + path)
    except OSError:
        pass
os.chmod(d + "/dir/f", 0o600)
os.symlink("f", d + "/dir/l")
os.readlink(d + "/dir/l")
os.rename(d + "/dir/f", d + "/dir/g")
os.access(d + "/dir/g", os.R_OK | os.W_OK)
try:
    os.rmdir(d + "/dir")
except OSError:
    pass
os.unlink(d + "/dir/l")
os.unlink(d + "/dir/g")
os.rmdir(d + "/dir")
"#;

/// The calls that name a path below `dir`, and the data calls of the program, up to what the numbers of
/// descriptors are.
fn calls(trace: &str, dir: &str) -> Vec<String> {
    let data = [
        "write(",
        "lseek(",
        "read(",
        "pread64(",
        "ftruncate(",
        "fsync(",
        "fchown(",
        "fadvise64(",
        "fcntl(",
        "dup3(",
        "rt_sigaction(",
    ];
    let begin = trace.find("/dir\"").expect("the first mkdir");
    let begin = trace[..begin].rfind('\n').map_or(0, |end| end + 1);
    let lines = trace[begin..].lines().map(|line| match line.split_once(' ') {
        Some((pid, rest)) if pid.bytes().all(|byte| byte.is_ascii_digit()) => rest.trim_start().to_owned(),
        _ => line.to_owned(),
    });
    lines
        .filter(|line| line.contains(dir) || data.iter().any(|call| line.starts_with(call)))
        .map(|line| line.replace(dir, "DIR"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The line without what differs from one execution to the next: `call(3, ...` becomes `call(FD, ...`, as
/// what open gives, and an address of the program's becomes `ADDRESS`.
fn without_numbers(line: &str) -> String {
    let (name, rest) = line.split_once('(').unwrap_or((line, ""));
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let line = if digits == 0 { line.to_owned() } else { format!("{name}(FD{}", &rest[digits..]) };
    match line.split_once(" = ") {
        Some((call, result)) if call.starts_with("open") && !result.starts_with('-') => {
            format!("{call} = FD")
        }
        _ => {
            let mut parts = line.split("0x");
            let first = parts.next().unwrap_or_default().to_owned();
            let is_digit = |digit: char| digit.is_ascii_hexdigit();
            parts.fold(first, |line, part| format!("{line}ADDRESS{}", part.trim_start_matches(is_digit)))
        }
    }
}

#[test]
fn lines_are_those_of_strace() {
    if Command::new("strace").arg("-V").output().is_err() {
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (host, ours, theirs) = (dir.path().join("d"), dir.path().join("ours"), dir.path().join("theirs"));
    std::fs::create_dir(&host).unwrap();
    let traced = trace(&["-o", ours.to_str().unwrap()], &["python3", "-S", "-c", PROGRAM, "/light"]);
    assert!(traced.status.success(), "{traced:?}");
    let strace = Command::new("strace")
        .args(["-f", "-o", theirs.to_str().unwrap(), "python3", "-S", "-c", PROGRAM, host.to_str().unwrap()])
        .output()
        .unwrap();
    if !strace.status.success() {
        return; // No ptrace(2) here.
    }
    let read = |path: &Path, dir: &str| {
        let lines = calls(&std::fs::read_to_string(path).unwrap(), dir);
        lines.iter().map(|line| without_numbers(line)).collect::<Vec<_>>()
    };
    let (ours, theirs) = (read(&ours, "/light"), read(&theirs, host.to_str().unwrap()));
    let of_program = |lines: &[String]| {
        let end = lines.iter().rposition(|line| line.contains("rmdir")).unwrap();
        lines[..=end].to_vec()
    };
    assert_eq!(of_program(&ours), of_program(&theirs));
}

#[test]
fn calls_are_chosen_and_the_status_is_the_commands_own() {
    let output = trace(
        &["-e", "mkdir,mkdirat"],
        &["sh", "-c", "mkdir /light/d; cat /light/d/none 2>/dev/null; exit 5"],
    );
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let shown = text(&output.stderr);
    let line =
        shown.lines().find(|line| line.contains("\"/light/d\", 0777)")).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.starts_with("[pid ") && line.ends_with("= 0"), "{line}");
    assert!(!shown.contains("openat("), "{shown}");
}

#[test]
fn nothing_is_lost_when_many_processes_make_more_calls_than_a_ring_holds() {
    let script = "import os\nfor i in range(20000): os.access('/light/none', 0)\n";
    let command = format!("for i in 1 2 3; do python3 -S -c \"{script}\" & done; wait");
    let output = trace(&["-e", "access,faccessat,faccessat2"], &["sh", "-c", &command]);
    let shown = text(&output.stderr);
    let made = shown
        .lines()
        .filter(|line| line.contains("access") && line.contains("\"/light/none\", F_OK"))
        .count();
    assert_eq!(made, 60_000, "{}", &shown[..shown.len().min(2000)]);
}

#[test]
fn a_killed_tracer_leaves_the_command_running() {
    use std::io::Read;
    use std::process::Stdio;

    let script = "import os\nfor i in range(50000): os.access('/light/none', 0)\nprint('done')\n";
    let mut lightpath = Command::new(env!("CARGO_BIN_EXE_lightpath"));
    lightpath.args(["trace", "--size", "64M", "--", "sh", "-c"]);
    lightpath.arg(format!("echo ready; read line; exec python3 -S -c \"{script}\""));
    lightpath.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tracer = lightpath.spawn().unwrap();
    let (mut said, mut input) = (tracer.stdout.take().unwrap(), tracer.stdin.take().unwrap());
    let mut ready = [0; 6];
    said.read_exact(&mut ready).unwrap();
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    std::io::Write::write_all(&mut input, b"go\n").unwrap();
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
}

#[test]
fn the_table_counts_calls_and_errors() {
    let script = "import os\nfor i in range(1000): os.access('/light/none', 0)\nfor i in range(50): os.stat('/light')\n";
    let output = trace(&["-c"], &["python3", "-S", "-c", script]);
    let shown = text(&output.stderr);
    assert!(shown.starts_with("% time     seconds  usecs/call     calls    errors syscall\n"), "{shown}");
    let row = |name: &str| -> Vec<String> {
        let line = shown.lines().find(|line| line.split_whitespace().last() == Some(name));
        line.unwrap_or_else(|| panic!("{name}: {shown}")).split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("access")[3..5], ["1000", "1000"], "{shown}");
    assert!(row("total")[3].parse::<u32>().unwrap() >= 1050, "{shown}");
}

#[test]
fn wrong_command_lines_get_one_line() {
    for (options, says) in
        [(&["-e", "reed"][..], "'reed' is no system call"), (&["--stats"], "-c prints a table")]
    {
        let output = trace(options, &["true"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(says), "{said}");
    }
    let output = trace(&["-o", "/none/file"], &["true"]);
    assert!(text(&output.stderr).contains("cannot make /none/file"), "{output:?}");
}

/// A program of a run, and its standard input and output.
struct Running {
    child: std::process::Child,
    said: std::io::BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Starts a script, which must say `ready`.
    fn start(options: &[&str], script: &str) -> Running {
        use std::process::Stdio;
        let mut lightpath = Command::new(env!("CARGO_BIN_EXE_lightpath"));
        lightpath.args(["run", "--size", "64M"]).args(options).args(["--", "python3", "-S", "-c", script]);
        lightpath.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = lightpath.spawn().unwrap();
        let said = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut running = Running { child, said };
        running.expect("ready");
        running
    }

    fn expect(&mut self, line: &str) {
        let mut said = String::new();
        std::io::BufRead::read_line(&mut self.said, &mut said).unwrap();
        assert_eq!(said.trim_end(), line);
    }

    /// Has the script read a line.
    fn go_on(&mut self) {
        std::io::Write::write_all(self.child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    }

    fn attach(&self, options: &[&str]) -> std::process::Child {
        let mut lightpath = Command::new(env!("CARGO_BIN_EXE_lightpath"));
        lightpath.args(["trace", "-p", &self.child.id().to_string()]).args(options);
        lightpath.stderr(std::process::Stdio::piped()).spawn().unwrap()
    }

    fn end(mut self) {
        self.go_on();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a file holds so many lines with a text.
fn wait_for_lines(count: usize, file: &Path, text: &str) -> String {
    let since = std::time::Instant::now();
    loop {
        let found = std::fs::read_to_string(file).unwrap_or_default();
        if found.lines().filter(|line| line.contains(text)).count() >= count {
            return found;
        }
        assert!(since.elapsed().as_secs() < 60, "no {count} {text} in {found}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn wait_for(file: &Path, text: &str) -> String {
    wait_for_lines(1, file, text)
}

fn interrupt(mut tracer: std::process::Child) {
    // SAFETY: a child that is not reaped yet.
    unsafe { libc::kill(tracer.id() as i32, libc::SIGINT) };
    assert_eq!(tracer.wait().unwrap().code(), Some(0));
}

/// A thread and a child that is made later read one byte after the other, and so does what the child
/// executes.
const READS: &str = r#"
import os, sys, threading, time
f = os.open("/light/f", os.O_RDWR | os.O_CREAT)
os.write(f, b"x")
is_over = False
def reads():
    at = 0
    while not is_over:
        os.pread(f, 1, at)
        at += 1
        if at % 100 == 0:
            time.sleep(0.001)
thread = threading.Thread(target=reads)
thread.start()
print("ready", flush=True)
sys.stdin.readline()
os.spawnlp(os.P_WAIT, "cat", "cat", "/light/f", "/light/other")
print("done", flush=True)
sys.stdin.readline()
is_over = True
thread.join()
"#;

/// The positions that pread64 was called with, in order.
fn positions(trace: &str) -> Vec<u64> {
    let of =
        |line: &str| line.split_once("pread64(3, ")?.1.split_once(") ")?.0.rsplit(' ').next()?.parse().ok();
    trace.lines().filter_map(of).collect()
}

#[test]
fn a_run_under_way_is_traced_and_left_as_it_was() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut running = Running::start(&[], READS);
    for (round, line) in ["xdone", ""].into_iter().enumerate() {
        let file = dir.path().join(round.to_string());
        let tracer = running.attach(&["-o", file.to_str().unwrap()]);
        wait_for_lines(20, &file, "pread64");
        if round == 0 {
            running.go_on();
            running.expect(line);
            let shown = wait_for(&file, "\"/light/other\"");
            assert!(shown.contains("= -1 ENOENT (No such file or directory)"), "{shown}");
        }
        interrupt(tracer);
        let after = positions(&std::fs::read_to_string(&file).unwrap());
        let follows = after.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(after.len() > 10 && follows, "calls were lost: {after:?}");
    }
    running.end();
}

#[test]
fn an_attached_tracer_ends_with_the_run() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("trace");
    let mut running = Running::start(&[], READS);
    let mut tracer = running.attach(&["-o", file.to_str().unwrap()]);
    wait_for(&file, "pread64");
    running.go_on();
    running.expect("xdone");
    running.end();
    assert_eq!(tracer.wait().unwrap().code(), Some(0));
}

#[test]
fn an_attached_tracer_that_is_killed_leaves_the_run_going_and_traceable() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = dir.path().join("trace");
    let mut running = Running::start(&[], READS);
    let mut tracer = running.attach(&["-o", file.to_str().unwrap()]);
    wait_for(&file, "pread64");
    let second = running.attach(&[]).wait_with_output().unwrap();
    let said = text(&second.stderr);
    assert!(said.contains("is traced already") && second.status.code() == Some(1), "{said}");
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    running.go_on();
    running.expect("xdone");
    let file = dir.path().join("again");
    let tracer = running.attach(&["-o", file.to_str().unwrap()]);
    wait_for(&file, "pread64");
    interrupt(tracer);
    running.end();
}

#[test]
fn attaching_to_what_cannot_be_traced_gets_one_line() {
    let running = Running::start(&["--stats"], "print('ready', flush=True); input()");
    let counted = running.attach(&[]).wait_with_output().unwrap();
    let said = text(&counted.stderr);
    assert!(said.contains("counts its calls (--stats)") && said.lines().count() == 1, "{said}");
    running.end();
    for (pid, says) in [("1", "takes part in no run"), ("4194304", "is gone")] {
        let mut lightpath = Command::new(env!("CARGO_BIN_EXE_lightpath"));
        let output = lightpath.args(["trace", "-p", pid]).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(says) || said.contains("another user's"), "{said}");
        assert!(said.lines().count() == 1 && !output.status.success(), "{said}");
    }
}

#[test]
fn calls_of_the_kernel_are_shown_on_request() {
    let script = "cat /etc/hostname /none; echo x | cat; cat /light/none; exit 3";
    for (options, shows) in [(&[][..], false), (&["--host"], true)] {
        let output = trace(options, &["sh", "-c", script]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let shown = text(&output.stderr);
        assert!(text(&output.stdout).ends_with("x\n"), "{output:?}");
        assert!(shown.contains("\"/light/none\", O_RDONLY) = -1 ENOENT"), "{shown}");
        let host = ["\"/none\", O_RDONLY) ", "read(0, \"x\\n\", ", "pipe2(", "wait4("].map(|line| {
            let found = shown.lines().find(|found| found.contains(line));
            found.is_some_and(|found| !found.ends_with("= ?"))
        });
        let any = host.iter().filter(|found| **found).count();
        assert_eq!(any >= 2, shows, "{host:?} {shown}");
    }
}

#[test]
fn a_shown_call_of_the_kernel_is_interrupted_as_ever() {
    let script = r#"
import os, signal, time
r, w = os.pipe()
signal.signal(signal.SIGALRM, lambda *_: os.write(w, b"z"))
signal.setitimer(signal.ITIMER_REAL, 0.1)
print(os.read(r, 1))
signal.siginterrupt(signal.SIGALRM, False)
if not os.fork():
    def until_asleep():
        seen = 0
        while seen < 5:
            time.sleep(0.02)
            state = open(f"/proc/{os.getppid()}/stat").read().rsplit(")", 1)[1].split()[0]
            seen = seen + 1 if state == "S" else 0
    until_asleep()
    os.kill(os.getppid(), signal.SIGALRM)
    until_asleep()
    os.write(w, b"y")
    os._exit(0)
print(os.read(r, 1))
"#;
    let output = trace(&["--host"], &["python3", "-S", "-c", script]);
    assert_eq!(text(&output.stdout), "b'z'\nb'y'\n", "{output:?}");
}

#[test]
fn a_shown_call_of_the_kernel_that_never_waits_is_never_interrupted() {
    let script = r#"
import os, signal
came = 0
def count(*_):
    global came
    came += 1
signal.signal(signal.SIGALRM, count)
signal.setitimer(signal.ITIMER_REAL, 50e-6, 50e-6)
while came < 4000:
    for _ in range(50):
        os.close(os.dup(0))
signal.setitimer(signal.ITIMER_REAL, 0)
print("none failed")
"#;
    let output = trace(&["--host"], &["python3", "-S", "-c", script]);
    assert_eq!(text(&output.stdout), "none failed\n", "{:?}", text(&output.stderr).lines().last());
}

/// Reads one byte after the other: alone for a while, then by turns with a second thread, and so on. The
/// threads wait for each other without a call that is recorded.
const TURNS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
static atomic_int turn, at;
static int fd;
static void reads(int count) {
    char byte;
    while (count-- > 0)
        pread(fd, &byte, 1, atomic_fetch_add(&at, 1));
}
static void *thread(void *own) {
    int number = own != 0;
    for (int round = 0; round < 600; round++) {
        while (atomic_load(&turn) != number)
            sched_yield();
        reads(round % 100 || number ? round % 3 + 1 : 20000);
        atomic_store(&turn, !number);
    }
    return 0;
}
int main(void) {
    pthread_t other;
    fd = open("/light/f", O_RDWR | O_CREAT, 0600);
    pthread_create(&other, 0, thread, &other);
    thread(0);
    return pthread_join(other, 0);
}
"#;

#[test]
fn calls_of_threads_that_take_turns_are_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let [source, program, file] = ["turns.c", "turns", "trace"].map(|name| dir.path().join(name));
    std::fs::write(&source, TURNS).unwrap();
    let made = Command::new("cc").args(["-w", "-O1", "-pthread", "-o"]).args([&program, &source]).status();
    assert!(made.unwrap().success());
    let output = trace(&["-e", "pread64", "-o", file.to_str().unwrap()], &[program.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let shown = std::fs::read_to_string(&file).unwrap();
    let threads: std::collections::BTreeSet<&str> =
        shown.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(threads.len(), 2);
    let positions = positions(&shown);
    let wrong = positions.iter().zip(0..).find(|(at, expected)| *at != expected);
    assert!(positions.len() > 120_000 && wrong.is_none(), "{} calls, {wrong:?}", positions.len());
}
