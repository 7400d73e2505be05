//! `lightpath run` as a caller sees it: statuses, signals, descriptors, job control.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn lightpath() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lightpath"))
}

/// `lightpath run OPTIONS -- COMMAND`.
fn run(options: &[&str], command: &[&str]) -> Output {
    lightpath().arg("run").args(options).arg("--").args(command).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn script(dir: &Path, name: &str, content: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_status_is_the_commands_own() {
    for options in [&[][..], &["--stats"]] {
        for status in [0, 1, 2, 42, 126, 127, 255] {
            let output = run(options, &["sh", "-c", &format!("exit {status}")]);
            assert_eq!(output.status.code(), Some(status), "{options:?}");
        }
    }
}

#[test]
fn a_signal_that_ends_the_command_ends_the_run() {
    for options in [&[][..], &["--stats"]] {
        for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGUSR1, libc::SIGSEGV] {
            let output = run(options, &["sh", "-c", &format!("ulimit -c 0; kill -{signal} $$")]);
            assert_eq!(output.status.signal(), Some(signal), "{options:?}");
        }
    }
}

#[test]
fn signals_reach_the_command() {
    for options in [&[][..], &["--stats"]] {
        let script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.01; done";
        let mut command = lightpath();
        command.arg("run").args(options).args(["--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        // SAFETY: the child is not reaped yet, so the number is its own.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(9), "got it\n"), "{options:?}");
    }
}

#[test]
fn stopping_and_going_on_are_the_commands_own() {
    for options in [&[][..], &["--stats"]] {
        let mut command = lightpath();
        command.arg("run").args(options).args(["--", "sh", "-c", "kill -STOP $$; exit 5"]);
        let mut child = command.stderr(Stdio::null()).process_group(0).spawn().unwrap();
        let pid = child.id() as i32;
        let mut status = 0;
        // SAFETY: `status` is writable; the child is ours.
        unsafe { libc::waitpid(pid, &mut status, libc::WUNTRACED) };
        assert!(libc::WIFSTOPPED(status), "{options:?}: {status:#x}");
        // SAFETY: the child is stopped, so the number is its own.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        assert_eq!(child.wait().unwrap().code(), Some(5), "{options:?}");
    }
}

/// What `command` prints after `prepare`, started as it is and by `lightpath run`.
fn directly_and_run(command: &[&str], prepare: fn()) -> (String, String) {
    let mut direct = Command::new(command[0]);
    direct.args(&command[1..]);
    let mut run = lightpath();
    run.args(["run", "--"]).args(command);
    let [direct, run] = [direct, run].map(|mut command| {
        // SAFETY: between fork and exec `prepare` makes async-signal-safe calls only.
        unsafe {
            command.pre_exec(move || {
                prepare();
                Ok(())
            })
        };
        text(&command.output().unwrap().stdout)
    });
    (direct, run)
}

#[test]
fn ignored_and_blocked_signals_are_inherited_as_they_are() {
    let reset = || {
        // SAFETY: the default dispositions run no code.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    };
    let change = || {
        // SAFETY: SIG_IGN runs no code; the set lives on this stack.
        unsafe {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGUSR1);
            libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        }
    };
    let command = ["grep", "^Sig[BI]", "/proc/self/status"];
    let (direct, run) = directly_and_run(&command, reset);
    assert_eq!(run, direct);
    let (direct, changed) = directly_and_run(&command, change);
    assert_eq!(changed, direct);
    assert_ne!(run, changed);
}

#[test]
fn closed_descriptors_stay_closed() {
    let command = ["sh", "-c", "[ -e /proc/self/fd/0 ] && echo open || echo closed"];
    let (direct, run) = directly_and_run(&command, || {
        // SAFETY: close is async-signal-safe.
        unsafe { libc::close(0) };
    });
    assert_eq!((&*direct, &*run), ("closed\n", "closed\n"));
}

#[test]
fn arguments_and_environment_arrive_as_they_are() {
    let odd = "a b\n'\"*$\u{e9}";
    let output = lightpath()
        .args([
            "run",
            "--at",
            "/light",
            "--",
            "sh",
            "-c",
            "printf '%s|' \"$@\" \"$ODD\" \"$LIGHTPATH\"",
            "sh",
            odd,
            "",
        ])
        .env("ODD", odd)
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), format!("{odd}||{odd}|/light|"));
}

#[test]
fn a_text_without_an_interpreter_is_run_by_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let path = script(dir.path(), "text", "echo \"$0 $1\"; exit 3\n");
    let output = run(&[], &[path.to_str().unwrap(), "x"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), format!("{} x\n", path.display())));
}

#[test]
fn a_script_is_run_by_its_interpreter() {
    let dir = tempfile::tempdir().unwrap();
    let path = script(dir.path(), "script", "#!/bin/sh -e\necho $1; false; echo not here\n");
    let output = run(&[], &[path.to_str().unwrap(), "x"]);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(1), "x\n"));
    let lost = script(dir.path(), "lost", "#!/no/such/interpreter\n");
    let output = run(&[], &[lost.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(
        text(&output.stderr),
        "lightpath: /no/such/interpreter: bad interpreter: No such file or directory\n"
    );
}

/// A static program that prints `started`.
fn static_program(dir: &Path) -> PathBuf {
    static_program_that_says(dir, "p", "started")
}

fn static_program_that_says(dir: &Path, name: &str, line: &str) -> PathBuf {
    compiled(dir, name, &format!("#include <stdio.h>\nint main(void) {{ puts(\"{line}\"); return 3; }}\n"))
}

/// A static program of this source.
fn compiled(dir: &Path, name: &str, source: &str) -> PathBuf {
    let (file, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&file, source).unwrap();
    let cc = Command::new("cc").arg("-static").arg("-o").args([&program, &file]).status();
    assert!(cc.is_ok_and(|status| status.success()), "cc -static failed: install gcc and libc6-dev");
    program
}

#[test]
fn a_static_program_starts() {
    let dir = tempfile::tempdir().unwrap();
    let program = static_program(dir.path());
    let name = program.to_str().unwrap();
    for options in [&[][..], &["--stats"]] {
        let output = run(options, &[name]);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(3), "started\n"));
    }
    let output = run(&[], &["sh", "-c", &format!("{name}; exec {name}")]);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(3), "started\nstarted\n"));
}

#[test]
fn a_damaged_static_program_is_refused_before_it_starts() {
    const ENTRY: usize = 24;
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(static_program(dir.path())).unwrap();
    let headers = u64::from_le_bytes(whole[32..40].try_into().unwrap()) as usize;
    let load = (headers..).step_by(56).find(|at| whole[*at..*at + 4] == [1, 0, 0, 0]).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = whole.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        changed
    };
    let cases = [
        ("cut", whole[..whole.len() / 2].to_vec(), "the file ends before what its headers announce"),
        ("headers", whole[..headers + 56].to_vec(), "damaged ELF file"),
        ("entry", with(ENTRY, &[0; 8]), "damaged ELF file"),
        ("offset", with(load + 8, &[1]), "damaged ELF file"),
        ("wraps", with(load + 40, &[0xff; 8]), "damaged ELF file"),
        ("large", with(load + 40, &(1u64 << 46).to_le_bytes()), "damaged ELF file"),
        ("machine", with(18, &[40]), "not an x86-64 program: Lightpath covers those only"),
        ("type", with(16, &[1]), "damaged ELF file"),
    ];
    for (name, bytes, why) in cases {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = run(&[], &[path.to_str().unwrap()]);
        assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(126), ""), "{name}");
        assert_eq!(text(&output.stderr), format!("lightpath: {}: {why}\n", path.display()));
    }
    // The gate refuses it as well, because some kernels would start it.
    let machine = dir.path().join("machine");
    let output = run(&[], &["env", machine.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(126));
    assert!(text(&output.stderr).contains("not an x86-64 program"), "{}", text(&output.stderr));
}

#[test]
fn a_setuid_program_is_refused_before_it_starts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sh");
    std::fs::copy("/bin/sh", &path).unwrap();
    // SAFETY: geteuid has no effect.
    let root = unsafe { libc::geteuid() } == 0;
    // Root makes a program of somebody else's; anybody else finds root's on every system.
    let path = match root {
        true => {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
            path
        }
        false => PathBuf::from("/usr/bin/passwd"),
    };
    let output = run(&[], &[path.to_str().unwrap(), "-c", "echo started"]);
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(126), ""));
    let line = format!(
        "lightpath: {}: setuid program: the loader would ignore Lightpath; run it without\n",
        path.display()
    );
    assert_eq!(text(&output.stderr), line);
}

#[test]
fn a_setuid_program_in_a_mount_is_refused_where_it_changes_something() {
    // SAFETY: geteuid has no effect.
    if unsafe { libc::geteuid() } != 0 {
        return; // Only root can give a file away, and set-user-ID to oneself changes nothing.
    }
    let script = "cd \"$LIGHTPATH\"; cp /bin/true user; cp user group; cp user locked
        chown 65534 user; chmod 4755 user; chgrp 65534 group locked; chmod 2755 group; chmod 2745 locked
        for name in user locked; do ./$name; echo $name $?; done
        setpriv --reuid 65534 --clear-groups sh -c './group; exit $?'; echo group $?
        setpriv --no-new-privs ./user; echo no_new_privs $?
        setpriv --reuid 65534 --clear-groups ./user; echo owner $?
        mount -o remount,nosuid \"$LIGHTPATH\"; ./user; echo nosuid $?";
    let output = run(&[], &["sh", "-c", script]);
    let expected = "user 126\nlocked 0\ngroup 126\nno_new_privs 0\nowner 0\nnosuid 0\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    let reported = text(&output.stderr);
    assert!(reported.contains("./user: setuid program: ") && reported.contains("./group: setgid program: "));
}

/// A process that may take a program's group does so before it executes the program.
#[test]
fn a_setgid_program_is_started_by_who_may_take_its_group() {
    // SAFETY: geteuid has no effect.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let host = tempfile::tempdir().unwrap();
    let script = "for dir in $LIGHTPATH $0; do
            cd $dir; cp /usr/bin/id id; cp /usr/bin/cat cat; chgrp 65534 id cat; chmod 2755 id cat; echo mine >mine
            ./id -g; ./id -u; ./cat $LIGHTPATH/mine; id -g
            printf '\\177ELF' >broken; chgrp 65534 broken; chmod 2755 broken
            python3 -c 'import os
try: os.execv(\"./broken\", [\"broken\"])
except OSError as e: print(e.errno, os.getresgid())'
        done";
    let output = run(&[], &["sh", "-c", script, host.path().to_str().unwrap()]);
    let expected = "65534\n0\nmine\n0\n8 (0, 0, 0)\n".repeat(2);
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    let id = host.path().join("id");
    let output = run(&[], &[id.to_str().unwrap(), "-g"]);
    assert_eq!(text(&output.stdout), "65534\n", "{}", text(&output.stderr));
}

/// As setcap(8) stores `cap_net_raw+ep`.
const CAPABILITY: &str = "0100000200200000000000000000000000000000";

#[test]
fn a_program_with_capabilities_in_a_mount_is_refused_where_it_gets_some() {
    // SAFETY: geteuid has no effect.
    if unsafe { libc::geteuid() } != 0 {
        return; // Only root may give a file capabilities.
    }
    let script = "cd \"$LIGHTPATH\"; cp /bin/true p
        give() { python3 -c \"import os; os.setxattr('p', 'security.capability', bytes.fromhex('$1'))\"; }
        user() { setpriv --reuid 65534 --clear-groups \"$@\"; }
        give $0; ./p; echo root $?; user ./p; echo user $?; user setpriv --no-new-privs ./p; echo no_new_privs $?
        cat /bin/true >p; user ./p; echo written $?
        give $0; chown 1 p; user ./p; echo given away $?
        give $0; mount -o remount,nosuid \"$LIGHTPATH\"; user ./p; echo nosuid $?";
    let output = run(&[], &["sh", "-c", script, CAPABILITY]);
    let expected = "root 0\nuser 126\nno_new_privs 0\nwritten 0\ngiven away 0\nnosuid 0\n";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("./p: "), "{}", text(&output.stderr));
}

/// Whoever is another user in a user namespace is not that user on the host.
#[test]
fn another_user_of_a_namespace_gets_no_directory() {
    // SAFETY: geteuid has no effect.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Programs that no run has met before need site images, which go to a directory of the user's.
    let user = 2_000_000 + std::process::id();
    let programs = [0, 1].map(|number| {
        let name = format!("p{number}");
        static_program_that_says(dir.path(), &name, &format!("started {number} {user}"))
    });
    let script = "cd \"$LIGHTPATH\"; echo text >f; user=$0; program=$1; shift
        unshare -U --map-user=$user $program; echo $?; unshare -U --map-user=$user sh -c \"cat f; $1; echo \\$?\"
        unshare -U $program; echo $?";
    let names = programs.each_ref().map(|path| path.to_str().unwrap());
    let output = run(&[], &["sh", "-c", script, &user.to_string(), names[0], names[1]]);
    let expected = format!("started 0 {user}\n3\ntext\nstarted 1 {user}\n3\nstarted 0 {user}\n3\n");
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    for user in [user, 65534] {
        let left = format!("/tmp/lightpath-{user}");
        let made =
            std::fs::metadata(&left).is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
        assert!(!made, "{left} locks user {user} out");
    }
}

#[test]
fn what_a_program_removes_of_the_cache_comes_back() {
    let cache = tempfile::tempdir().unwrap();
    let script = "echo text >$LIGHTPATH/f; rm -r \"$XDG_CACHE_HOME\"/lightpath
        cat $LIGHTPATH/f; sh -c 'cat $LIGHTPATH/f'; python3 -c 'import os; print(os.listdir(os.environ[\"LIGHTPATH\"]))'
        busybox cat $LIGHTPATH/f; test -d \"$XDG_CACHE_HOME\"/lightpath && echo back";
    let mut command = lightpath();
    command.args(["run", "--", "sh", "-c", script]).env("XDG_CACHE_HOME", cache.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(text(&output.stdout), "text\ntext\n['f']\ntext\nback\n", "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_root_directory_without_the_gate_starts_no_program() {
    let cache = tempfile::tempdir().unwrap();
    let hide = "mount -t tmpfs -o ro none \"$XDG_CACHE_HOME\" && exec sh -c 'echo started'";
    let mut command = lightpath();
    command.args(["run", "--", "unshare", "-Urm", "sh", "-c", hide]).env("XDG_CACHE_HOME", cache.path());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!((output.status.code(), &*text(&output.stdout)), (Some(126), ""));
    let why = "this root directory lacks Lightpath's files: bind its cache directory into the sandbox, too";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
}

/// Where the kernel writes dumps to the working directory, as by default.
#[test]
fn a_core_dump_lands_on_the_host() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['/', '|']) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = "ulimit -c unlimited || exit 0; cd $LIGHTPATH; sh -c 'kill -ABRT $$'; ls | wc -l";
    let mut command = lightpath();
    command.args(["run", "--", "sh", "-c", script]).current_dir(&dir);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    if !text(&output.stdout).is_empty() {
        assert_eq!(text(&output.stdout).trim(), "0");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }
}

#[test]
fn an_environment_that_is_too_large_is_one_line() {
    // The kernel takes a quarter of the stack limit: 256 KiB here.
    let home = tempfile::tempdir().unwrap();
    let filled = |last: usize| {
        let mut command = lightpath();
        command.args(["run", "--", "true", &"x".repeat(100_000), &"x".repeat(100_000), &"x".repeat(last)]);
        command.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
        // SAFETY: setrlimit is async-signal-safe and the limit is a live object.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
                libc::setrlimit(libc::RLIMIT_STACK, &limit);
                Ok(())
            })
        };
        command.output()
    };
    // The most with which the launcher starts is too much for the command, whose environment is larger.
    let (mut fits, mut fails) = (0, 100_000);
    assert!(filled(fails).is_err());
    while fails - fits > 1 {
        let middle = (fits + fails) / 2;
        *(if filled(middle).is_ok() { &mut fits } else { &mut fails }) = middle;
    }
    let output = filled(fits).unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert_eq!(
        text(&output.stderr),
        "lightpath: true: arguments and environment are too large; shorten them\n"
    );
    assert_eq!(filled(fits - 4096).unwrap().status.code(), Some(0));
}

#[test]
fn the_shell_is_the_users() {
    let dir = tempfile::tempdir().unwrap();
    let path = script(dir.path(), "myshell", "#!/bin/sh\necho my shell at $LIGHTPATH\n");
    let output = lightpath().args(["shell", "--at", "/light/here"]).env("SHELL", &path).output().unwrap();
    assert_eq!(text(&output.stdout), "my shell at /light/here\n");
}

#[test]
fn the_binary_alone_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copied");
    // By a process of its own: a child of another test would keep the copy open for writing.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_lightpath")).arg(&copy).status().unwrap().success());
    let mut command = Command::new(&copy);
    command.args(["run", "--", "sh", "-c", "echo works"]).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("XDG_CACHE_HOME", dir.path().join("cache"));
    let output = command.output().unwrap();
    assert_eq!((&*text(&output.stdout), &*text(&output.stderr)), ("works\n", ""));
}

#[test]
fn completions_and_the_manual_page_come_from_the_definition() {
    for (arguments, part) in [
        (&["completions", "bash"][..], "--region"),
        (&["completions", "zsh"], "#compdef lightpath"),
        (&["completions", "fish"], "complete -c lightpath"),
        (&["man"], ".TH lightpath 1"),
    ] {
        let output = lightpath().args(arguments).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains(part), "{arguments:?}");
    }
}

#[test]
fn doctor_has_a_verdict_on_every_line() {
    let output = lightpath().arg("doctor").output().unwrap();
    let report = text(&output.stdout);
    let lines = report.lines().take_while(|line| !line.is_empty());
    let verdicts: Vec<&str> = lines.map(|line| &line[..4]).collect();
    assert!(verdicts.len() > 15, "{report}");
    assert!(verdicts.iter().all(|verdict| ["ok  ", "warn", "FAIL"].contains(verdict)), "{report}");
    assert_eq!(output.status.code(), Some(i32::from(verdicts.contains(&"FAIL"))), "{report}");
}

#[test]
fn sites_of_the_c_library_are_found_and_kept() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let library =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("/libc.so"));
    let library = library.expect("this test is linked with libc.so");
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("bundle");
    for _ in 0..2 {
        let output =
            lightpath().args(["sites", "--bundle"]).arg(&bundle).args(["--build", library]).output().unwrap();
        assert_eq!((output.status.code(), &*text(&output.stderr)), (Some(0), ""));
    }
    assert!(std::fs::metadata(&bundle).unwrap().len() > 100_000);
    let output = lightpath().args(["sites", library]).output().unwrap();
    assert!(text(&output.stdout).trim_end().ends_with(" patched"), "{}", text(&output.stdout));
}

/// The gate's words are found by gs.
#[test]
fn a_static_program_that_sets_the_base_of_gs_crashes() {
    let source = "#include <fcntl.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n
        int main(int n, char **v) { syscall(SYS_arch_prctl, 0x1001, 0); return open(v[1], 0) < 0; }";
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "p", source);
    let script = "echo x >$LIGHTPATH/f; $0 $LIGHTPATH/f 2>/dev/null; echo $?";
    let output = run(&[], &["sh", "-c", script, program.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "139\n");
}

/// Sites are found in files.
#[test]
fn calls_of_code_that_a_program_makes_go_to_the_kernel() {
    let source = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(int n, char **v) {
    static const char code[] = "\xb8\x02\0\0\0\x0f\x05\xc3";
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(at, code, sizeof code);
    for (int i = 1; i < n; i++)
        printf("%d\n", ((int (*)(char *, long, long))at)(v[i], 0, 0) > 0);
}"#;
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "p", source);
    let output =
        run(&[], &["sh", "-c", "echo x >$LIGHTPATH/f; $0 $LIGHTPATH/f /bin/sh", program.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "0\n1\n");
}

/// The gate's calls would be trapped, too.
#[test]
fn programs_do_not_have_their_own_calls_trapped() {
    let source = r#"
#include <errno.h>
#include <stdio.h>
#include <sys/prctl.h>
int main(void) { int done = prctl(59, 1, 0, 0, 0); printf("%d %d\n", done, errno); }"#;
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), "p", source);
    let output = run(&[], &["sh", "-c", "$0; $0 >$LIGHTPATH/f; cat $LIGHTPATH/f", program.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "-1 22\n-1 22\n");
}

/// What the kernel executes is written to a memfd.
#[test]
fn a_limit_of_file_sizes_ends_the_start_of_a_program_in_a_mount() {
    let script = "cd $LIGHTPATH; cp /bin/true p; (ulimit -f 1; exec ./p) 2>/dev/null; echo $?; ./p; echo $?";
    let output = run(&[], &["sh", "-c", script]);
    assert_eq!(text(&output.stdout), "153\n0\n");
}

/// The limit is the program's, and not for what Lightpath keeps of programs that it meets first.
#[test]
fn a_limit_of_file_sizes_does_not_hinder_the_first_start_of_a_program() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = "ulimit -f 1; head -c 3 /dev/zero | wc -c; (head -c 4000 /dev/zero >$LIGHTPATH/f) 2>/dev/null; wc -c <$LIGHTPATH/f";
    let mut command = lightpath();
    command.env("XDG_CACHE_HOME", cache.path()).args(["run", "--", "sh", "-c", script]);
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "3\n512\n", "{}", text(&output.stderr));
}

/// The kernel cannot mount ours.
#[test]
fn a_sandbox_has_no_directory_of_a_mount_at_another_place() {
    if Command::new("bwrap").arg("--version").output().is_err() {
        return;
    }
    let script = "mkdir $LIGHTPATH/d; bwrap --bind / / --bind $LIGHTPATH/d /tmp true; echo $?
        bwrap --bind / / ls $LIGHTPATH; echo $?";
    let output = run(&[], &["sh", "-c", script]);
    assert_eq!(text(&output.stdout), "1\nd\n0\n");
    // Which step fails depends on the version.
    assert!(text(&output.stderr).starts_with("bwrap: Can't "), "{}", text(&output.stderr));
}

/// The loader learns a program's directory from the name of a memfd.
#[test]
fn a_program_with_a_long_path_has_no_directory_to_search() {
    let script = "cd $LIGHTPATH; echo 'int f(void) { return 0; }' >f.c; echo 'int f(void); int main(void) { return f(); }' >p.c
        make() { mkdir $1; cc -shared -o $1/libf.so f.c && cc -o $1/p p.c -L$1 -lf -Wl,-rpath,'$ORIGIN'; }
        long=$(printf '%0250d' 1); make short; make $long; short/p; echo $?; $long/p 2>/dev/null; echo $?";
    let output = run(&[], &["sh", "-c", script]);
    assert_eq!(text(&output.stdout), "0\n127\n", "{}", text(&output.stderr));
}

/// What cannot be said changes no status.
#[test]
fn standard_error_may_be_full_or_closed() {
    for (line, status) in
        [("run -- /nosuch", 127), ("run --stats -- true", 0), ("run --stats -- false", 1), ("rum", 2)]
    {
        for to in ["/dev/full", "&-"] {
            let script = format!("{} {line} 2>{to}", env!("CARGO_BIN_EXE_lightpath"));
            let ended = Command::new("sh").args(["-c", &script]).status().unwrap();
            assert_eq!(ended.code(), Some(status), "{script}");
        }
    }
}

/// A command that ends at once is waited for although SIGCHLD was ignored, which it still is for the command.
#[test]
fn an_ignored_sigchld_is_no_obstacle() {
    for _ in 0..5 {
        let script = "trap '' CHLD; exec \"$0\" run --stats -- grep SigIgn /proc/self/status";
        let output = Command::new("timeout")
            .args(["20", "bash", "-c", script, env!("CARGO_BIN_EXE_lightpath")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let ignored = text(&output.stdout);
        let set = u64::from_str_radix(ignored.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_ne!(set & 1 << (libc::SIGCHLD - 1), 0, "{ignored}");
    }
}
