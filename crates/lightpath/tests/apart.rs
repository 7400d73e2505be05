//! Processes take part in a run when they meet a mount: whatever call that is, and not before.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn lightpath(options: &[&str], command: &[&str]) -> Command {
    let mut run = Command::new(env!("CARGO_BIN_EXE_lightpath"));
    run.args(["run", "--size", "64M"]).args(options).arg("--").args(command).stdin(Stdio::null());
    run
}

fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}{out}{err}", output.status)
}

/// Bytes of the region that the process with these maps has mapped at one place.
fn most_mapped(maps: &str) -> u64 {
    let bytes = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
    };
    maps.lines().filter(|line| line.contains("/memfd:lightpath")).filter_map(bytes).max().unwrap_or(0)
}

#[test]
fn who_meets_no_mount_does_not_map_the_region() {
    const ALL: u64 = 64 << 20;
    let maps = |command: &[&str]| {
        let output = lightpath(&[], command).output().unwrap();
        most_mapped(&String::from_utf8_lossy(&output.stdout))
    };
    let first = maps(&["cat", "/proc/self/maps"]);
    assert!(first > 0 && first < ALL, "{first:#x}");
    // Not by way of a shell, nor of /dev/null, nor when something is not there.
    assert_eq!(maps(&["sh", "-c", "ls /nowhere 2>/dev/null; cat /proc/self/maps"]), first);
    assert!(maps(&["cat", "/light/none", "/proc/self/maps"]) > ALL);
    assert!(maps(&["sh", "-c", "cd /light; cat /proc/self/maps"]) > ALL);
    assert!(maps(&["sh", "-c", "true > /light/file; exec cat /proc/self/maps"]) > ALL);
}

/// Python that makes one call on `D`, a new directory, as the first of its process.
const FIRST_CALLS: &[&str] = &[
    "print(os.stat(D).st_mode)",
    "print(os.lstat(D + '/').st_nlink)",
    "print(os.access(D, 7), os.access(D + '/none', 0))",
    "print(os.listdir(D))",
    "print(os.mkdir(D + '/a'), os.listdir(D))",
    "print(open(D + '/f', 'w').write('text'), open(D + '/f').read())",
    "print(os.open(D, os.O_RDONLY | os.O_DIRECTORY))",
    "print(os.open(D, os.O_RDONLY | os.O_TMPFILE | os.O_RDWR))",
    "print(os.chdir(D), os.getcwd() == D)",
    "print(os.symlink('/nowhere', D + '/l'), os.readlink(D + '/l'))",
    "print(os.mkfifo(D + '/p'), os.stat(D + '/p').st_mode)",
    "print(os.statvfs(D).f_namemax)",
    "os.rename('/proc/version', D + '/x')",
    "os.link(D + '/none', D + '/x')",
    "os.rename(D + '/none', '/tmp/none')",
    "os.truncate(D + '/none', 0)",
    "os.unlink(D + '/none')",
    "os.rmdir(D + '/none')",
    "os.execv(D + '/none', ['none'])",
    "os.execv(D, ['none'])",
    "os.utime(D, (1, 1)), print(os.stat(D).st_mtime)",
    "os.chmod(D, 0o700), print(oct(os.stat(D).st_mode))",
    "os.umask(0o77), os.mkdir(D + '/d'), print(oct(os.stat(D + '/d').st_mode))",
    "os.setxattr(D, 'user.a', b'1')",
    "print(os.listxattr(D + '/none'))",
    "s = socket.socket(socket.AF_UNIX); s.connect(D + '/none')",
    "s = socket.socket(socket.AF_UNIX); s.bind(D + '/s'); print(s.getsockname() == D + '/s')",
    "os.chdir('/'), print(os.listdir('.' + D))",
    "os.chdir('/usr/bin'), print(os.listdir('../..' + D))",
    "d = os.open('/', os.O_RDONLY); print(os.listdir(os.open(D[1:], os.O_RDONLY, dir_fd=d)))",
    "print(os.listdir('/usr/..//./' + D))",
    "print(os.listdir(D + '/../' + os.path.basename(D)))",
    "print(open('/proc/self/cwd' + D + '/none'))",
    "import subprocess; print(subprocess.run(['pwd'], cwd=D, capture_output=True).stdout == D.encode() + b'\\n')",
    "a = [(os.POSIX_SPAWN_OPEN, 1, D + '/o', os.O_CREAT | os.O_WRONLY, 0o640)]; \
     p = os.posix_spawn('/bin/echo', ['echo', 'spawned'], os.environ, file_actions=a); \
     print(os.waitpid(p, 0)[1], open(D + '/o').read(), oct(os.stat(D + '/o').st_mode))",
    "import threading; t = threading.Thread(target=lambda: os.mkdir(D + '/t')); t.start(); t.join(); print(os.listdir(D))",
    "p = os.fork(); p or (os.mkdir(D + '/c'), os._exit(7)); print(os.waitpid(p, 0)[1], os.listdir(D))",
    "os.closerange(3, 1000); print(os.listdir(D))",
    "import ctypes; ctypes.CDLL(D + '/none.so')",
    "os.chroot(D + '/none')",
    "m = __import__('mmap'); f = open(D + '/m', 'w+b'); f.write(b'x' * 9); f.flush(); print(m.mmap(f.fileno(), 9)[:])",
];

#[test]
fn the_first_call_may_be_any() {
    for call in FIRST_CALLS {
        let body = format!(
            "import os, socket\nD = os.environ['D']\ntry:\n    {call}\nexcept Exception as e:\n    print(type(e).__name__, e)\n"
        );
        let of = |mut command: Command, directory: &str| {
            let output = command.env("D", directory).stdin(Stdio::null()).output().unwrap();
            text(&output).replace(directory, "D")
        };
        let kernels = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = kernels.path().to_str().unwrap();
        // As a mount's root is.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(directory, mode).unwrap();
        let mut kernel = Command::new("/usr/bin/python3");
        kernel.args(["-c", &body]);
        let expected = of(kernel, directory);
        let covered = lightpath(&["--at", "/mount/point"], &["/usr/bin/python3", "-c", &body]);
        assert_eq!(of(covered, "/mount/point"), expected, "{call}");
    }
}

#[test]
fn a_limit_or_a_filter_does_not_keep_a_process_out() {
    let limited = "ulimit -v 4000000; echo text > /light/file; read word < /light/file; echo $word";
    assert_eq!(text(&lightpath(&[], &["sh", "-c", limited]).output().unwrap()), "exit status: 0text\n");
    // A filter of one instruction, which allows everything: what counts is that the process has joined by
    // then.
    let filtered = "import ctypes, os, struct
code = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
program = struct.pack('HxxxxxxQ', 1, ctypes.addressof(code))
libc = ctypes.CDLL(None)
print(libc.prctl(38, 1, 0, 0, 0), libc.prctl(22, 2, program, 0, 0))
print(any('/memfd:lightpath' in line and int(line.split('-')[0], 16) >> 40 == 0x58 for line in open('/proc/self/maps')))";
    let output = lightpath(&[], &["/usr/bin/python3", "-c", filtered]).output().unwrap();
    assert_eq!(text(&output), "exit status: 00 0\nTrue\n");
}

#[test]
fn a_run_whose_processes_have_no_slots_keeps_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("region");
    let region = region.to_str().unwrap();
    let mut first = lightpath(
        &["--region", region, "--at", "/one"],
        &["sh", "-c", "read line; echo $line > /one/f; cat /one/f"],
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    // As many as there are records, and more.
    for _ in 0..lp_region::layout::RUNS + 2 {
        let other = lightpath(&["--region", region, "--at", "/two"], &["true"]).output().unwrap();
        assert_eq!(text(&other), "exit status: 0");
    }
    first.stdin.take().unwrap().write_all(b"still here\n").unwrap();
    let ended = first.wait_with_output().unwrap();
    assert_eq!(text(&ended), "exit status: 0still here\n");
}
