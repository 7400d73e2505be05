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
import os, sys
d = sys.argv[1]
os.mkdir(d + "/dir", 0o750)
fd = os.open(d + "/dir/f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
os.write(fd, b"hello \"world\"\n\x01\x012" + b"a" * 40)
os.lseek(fd, 2, os.SEEK_SET)
os.read(fd, 3)
os.pread(fd, 4, 1)
os.ftruncate(fd, 5)
os.fsync(fd)
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
    let data = ["write(", "lseek(", "read(", "pread64(", "ftruncate(", "fsync("];
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
        _ => match line.split_once("0x") {
            Some((before, rest)) => {
                format!("{before}ADDRESS{}", rest.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()))
            }
            None => line,
        },
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
