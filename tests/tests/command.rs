//! The command line: exit statuses, bad input, mounts, region files, terminals, limits.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use lp_tests::{binary, program};
use tempfile::TempDir;

fn lightpath() -> Command {
    let mut command = Command::new(binary::lightpath().unwrap());
    command.env("XDG_CACHE_HOME", binary::cache_home().unwrap()).env("LC_ALL", "C");
    command.env("PATH", program::search_path()).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    lightpath().arg("run").args(arguments).output().unwrap()
}

/// The file that process `pid` executes, once it executes a memfd named after `program`.
fn executed(pid: &str, program: &str) -> fs::Metadata {
    let exe = format!("/proc/{pid}/exe");
    for _ in 0..500 {
        let link = fs::read_link(&exe).unwrap_or_default();
        if link.to_string_lossy().starts_with(&format!("/memfd:{program}")) {
            return fs::metadata(&exe).unwrap();
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{pid} does not execute {program}: {:?}", fs::read_link(&exe));
}

/// The inode of the memfd named after `program` whose text process `pid` has mapped, once it has. What it
/// executes may be an outline of that memfd.
fn text_of(pid: &str, program: &str) -> String {
    for _ in 0..500 {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let is_text = |line: &&str| line.contains(" r-xp ") && line.contains(&format!("/memfd:{program}"));
        if let Some(inode) = maps.lines().find(is_text).and_then(|line| line.split_whitespace().nth(4)) {
            return inode.to_owned();
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{pid} has no text of {program}: {:?}", fs::read_to_string(format!("/proc/{pid}/maps")));
}

/// Runs a shell script with `$LP` naming the command.
fn shell(script: &str) -> Output {
    let mut command = Command::new("/bin/bash");
    command.args(["--norc", "-c", script]).env("LP", binary::lightpath().unwrap()).env("LC_ALL", "C");
    command.env("XDG_CACHE_HOME", binary::cache_home().unwrap()).env("PATH", program::search_path());
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn said(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "standard error");
    str::from_utf8(&output.stdout).unwrap()
}

/// Expects one line on standard error that begins with the command's name, nothing on standard output, and
/// this exit status.
#[track_caller]
fn refused(output: &Output, status: i32) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("lightpath: "), "{text}");
    assert!(output.stdout.is_empty());
}

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("lp-command-").tempdir().unwrap()
}

#[test]
fn exit_status_is_the_commands() {
    for status in [0, 1, 7, 126, 127, 255] {
        assert_eq!(run(&["--", "sh", "-c", &format!("exit {status}")]).status.code(), Some(status));
    }
}

#[test]
fn a_signal_is_the_commands() {
    for signal in [2, 9, 15, 6] {
        // Who runs the tests may ignore SIGINT, as a shell does for what it starts in the background.
        let kill = format!("kill -{signal} $$");
        let status = run(&["--", "env", "--default-signal", "sh", "-c", &kill]).status;
        assert!(status.signal() == Some(signal) || status.code() == Some(128 + signal), "{status:?}");
    }
}

#[test]
fn a_command_that_is_not_there() {
    refused(&run(&["--", "no-such-command-here"]), 127);
    refused(&run(&["--", "/no/such/command"]), 127);
}

#[test]
fn a_command_that_cannot_be_run() {
    let dir = directory();
    let file = dir.path().join("file");
    fs::write(&file, "text").unwrap();
    refused(&run(&["--", file.to_str().unwrap()]), 126);
    refused(&run(&["--", dir.path().to_str().unwrap()]), 126);
}

/// A function with a call of the kernel that is jumped to from both sides, so that no jump to the gate fits.
const ODD: &str = r"
.globl odd
odd:
    test %edi, %edi
    mov $3, %eax
    jz 1f
    nop
1:  syscall
2:  nop
    test %eax, %eax
    jz 1b
    js 2b
    ret
.section .note.GNU-stack
";

/// With a second thread, whose calls would not be trapped.
const LOAD: &str = r"
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>
static void *wait_for_ever(void *unused) { for (;;) pause(); }
int main(int c, char **v) {
    pthread_t thread;
    return pthread_create(&thread, 0, wait_for_ever, 0) || !dlopen(v[1], RTLD_NOW);
}
";

#[test]
fn a_refusal_names_what_is_refused() {
    let dir = directory();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let compile = |source: &str, text: &str, arguments: &[&str]| {
        fs::write(at(source), text).unwrap();
        let done = Command::new("gcc").current_dir(dir.path()).args(arguments).arg(source).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    compile("library.s", ODD, &["-shared", "-o", "libodd.so"]);
    compile("load.c", LOAD, &["-pthread", "-o", "load"]);
    std::os::unix::fs::symlink("libodd.so", at("link.so")).unwrap();

    #[track_caller]
    fn names(output: &Output, path: &str) {
        refused(output, 126);
        let expected = format!("lightpath: {path}: has a system call that cannot be intercepted\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
    }
    let inside = |script: &str| run(&["--", "sh", "-c", script, "sh", dir.path().to_str().unwrap()]);
    names(&run(&["--", &at("load"), &at("libodd.so")]), &at("libodd.so"));
    names(&run(&["--", &at("load"), &at("link.so")]), &at("libodd.so"));
    names(&inside("cp $1/libodd.so /light; exec $1/load /light/libodd.so"), "/light/libodd.so");
}

/// Some linkers (tcc's) leave no place in a program for the address of the loader's list.
#[test]
fn a_program_that_does_not_tell_of_its_libraries_runs() {
    let dir = directory();
    let program = dir.path().join("p");
    fs::write(dir.path().join("p.c"), "int main(void) { return 3; }").unwrap();
    for compiler in ["cc", "musl-gcc"] {
        let done = Command::new(compiler).current_dir(dir.path()).args(["-o", "p", "p.c"]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let mut bytes = fs::read(&program).unwrap();
        // DT_DEBUG, and its value as the linker leaves it.
        let entry: Vec<u8> = [21u64, 0].into_iter().flat_map(u64::to_le_bytes).collect();
        let at = bytes.windows(16).position(|window| window == entry).expect("an entry");
        bytes[at..at + 8].copy_from_slice(&0x6fff_fdf0_u64.to_le_bytes());
        fs::write(&program, bytes).unwrap();
        assert_eq!(run(&["--", program.to_str().unwrap()]).status.code(), Some(3));
        let copied = run(&["--", "sh", "-c", "cp $0 /light; exec /light/p", program.to_str().unwrap()]);
        assert_eq!(copied.status.code(), Some(3));
    }
}

#[test]
fn bad_options() {
    refused(&run(&["--no-such-option", "--", "true"]), 2);
    refused(&run(&["--at", "relative", "--", "true"]), 2);
    refused(&run(&["--at", "", "--", "true"]), 2);
    refused(&run(&["--size", "many", "--", "true"]), 2);
    refused(&run(&["--size", "-5", "--", "true"]), 2);
    refused(&run(&["--size", "99999999999999999999G", "--", "true"]), 2);
    refused(&run(&["--at"]), 2);
    refused(&run(&[]), 2);
    refused(&run(&["--"]), 2);
    refused(&lightpath().arg("no-such-subcommand").output().unwrap(), 2);
}

/// A program of the host that is executed by an outline has another dynamic linker.
#[test]
fn outlines_are_made_as_the_environment_says() {
    let linkers = |outlines: &str| {
        let script =
            "$LP run -- sh -c 'grep -qE \"/ld-[0-9a-f]{16}.so$\" /proc/self/maps && echo ours; true'";
        // With a path of its own, as cargo sets one, the gate is preloaded.
        let how = format!("unset LD_LIBRARY_PATH; LIGHTPATH_OUTLINES={outlines}");
        said(&shell(&format!("{how} {script}"))).to_owned()
    };
    assert_eq!((linkers("always").as_str(), linkers("never").as_str()), ("ours\n", ""));
    refused(&shell("LIGHTPATH_OUTLINES=yes $LP run -- true"), 1);
}

#[test]
fn help_and_version() {
    for arguments in
        [&["--help"][..], &["run", "--help"], &["--version"], &["shell", "--help"], &["doctor", "--help"]]
    {
        assert!(!said(&lightpath().args(arguments).output().unwrap()).is_empty());
    }
    assert!(!lightpath().arg("doctor").output().unwrap().stdout.is_empty());
}

#[test]
fn a_mount_that_is_read_only_is_so_for_one_run() {
    let directory = directory();
    let file = directory.path().join("region");
    let file = file.to_str().expect("UTF-8");
    let make = "touch /light/x 2>/dev/null; ls /light; [ -w /light ] || echo closed";
    let one = |ro: &[&str]| {
        let options = [ro, &["--region", file, "--size", "16M", "--", "sh", "-c", make]].concat();
        said(&run(&options)).to_owned()
    };
    assert_eq!(one(&["--ro"]), "closed\n");
    assert_eq!(one(&[]), "x\n");
    assert_eq!(one(&["--ro"]), "x\nclosed\n");
}

#[test]
fn the_mount_is_named_and_empty() {
    assert_eq!(said(&run(&["--", "sh", "-c", "echo $LIGHTPATH; ls -A $LIGHTPATH | wc -l"])), "/light\n0\n");
    assert_eq!(
        said(&run(&["--at", "/elsewhere/x", "--", "sh", "-c", "echo $LIGHTPATH; ls -A /elsewhere/x"])),
        "/elsewhere/x\n"
    );
    assert!(!Path::new("/elsewhere").exists());
}

#[test]
fn several_mounts_are_apart() {
    let script = "echo 1 >/one/f; echo 2 >/two/f; cat /one/f /two/f; mv /one/f /two/g 2>&1; ls /one /two; \
                  ln /two/f /one/hard 2>/dev/null || echo apart";
    let output = run(&["--at", "/one", "--at", "/two", "--", "sh", "-c", script]);
    assert_eq!(said(&output), "1\n2\n/one:\n\n/two:\nf\ng\napart\n");
}

#[test]
fn a_directory_is_covered_and_uncovered() {
    let dir = directory();
    fs::write(dir.path().join("beneath"), "host").unwrap();
    let at = dir.path().to_str().unwrap();
    assert_eq!(said(&run(&["--at", at, "--", "sh", "-c", "cd $LIGHTPATH; ls -A; echo x >f; ls -A"])), "f\n");
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["beneath"]);
}

#[test]
fn a_region_file_is_there_again() {
    let dir = directory();
    let file = dir.path().join("region");
    let region = file.to_str().unwrap();
    said(&run(&[
        "--region",
        region,
        "--",
        "sh",
        "-c",
        "cd $LIGHTPATH; mkdir d; echo kept >d/f; ln -s d/f l; mkfifo p",
    ]));
    assert_eq!(
        said(&run(&["--region", region, "--", "sh", "-c", "cd $LIGHTPATH; ls -F; cat l; rm -r d"])),
        "d/\nl@\np|\nkept\n"
    );
    assert_eq!(said(&run(&["--region", region, "--", "sh", "-c", "ls $LIGHTPATH"])), "l\np\n");
}

#[test]
fn the_command_may_need_libraries_of_a_region_file() {
    let dir = directory();
    let script = format!(
        r#"cd {dir}
        echo 'int answer(void) {{ return 42; }}' >l.c
        echo '#include <stdio.h>
        int answer(void);
        int main(void) {{ printf("%d\n", answer()); return 0; }}' >m.c
        gcc -shared -fPIC -Wl,-soname,libl.so l.c -o libl.so && gcc m.c -L. -ll -o plain
        gcc m.c -L. -ll -Wl,-rpath,/light -o path
        "$LP" run --region r -- mv libl.so /light
        "$LP" run --region r -- ./path
        LD_LIBRARY_PATH=/light "$LP" run --region r -- ./plain
        LD_PRELOAD=/light/libl.so "$LP" run --region r -- ./plain 2>/dev/null
        "$LP" run --region r -- ./plain 2>&1 | grep -c 'libl.so: cannot open'"#,
        dir = dir.path().display()
    );
    assert_eq!(said(&shell(&script)), "42\n42\n42\n1\n");
}

#[test]
fn a_region_file_serves_two_runs_at_once() {
    let dir = directory();
    let script = format!(
        r#"cd {dir}
        "$LP" run --region r -- sh -c 'cd $LIGHTPATH; echo first >a.tmp; mv a.tmp a; while [ ! -e b ]; do sleep 0.01; done; cat b; echo done >c' &
        "$LP" run --region r -- sh -c 'cd $LIGHTPATH; while [ ! -e a ]; do sleep 0.01; done; cat a; echo second >b.tmp; mv b.tmp b; while [ ! -e c ]; do sleep 0.01; done'
        wait
        "$LP" run --region r -- sh -c 'cat $LIGHTPATH/c'"#,
        dir = dir.path().display()
    );
    assert_eq!(
        said(&shell(&format!("timeout 30 bash -c '{}'", script.replace('\'', r"'\''")))),
        "first\nsecond\ndone\n"
    );
}

#[test]
fn a_file_that_is_no_region_is_left_alone() {
    let dir = directory();
    let file = dir.path().join("region");
    for content in [&b"not a region"[..], &[0; 100], &[0xff; 8192]] {
        fs::write(&file, content).unwrap();
        refused(&run(&["--region", file.to_str().unwrap(), "--", "true"]), 1);
        assert_eq!(fs::read(&file).unwrap(), content);
    }
    refused(&run(&["--region", "/no/such/directory/region", "--", "true"]), 1);
    refused(&run(&["--region", dir.path().to_str().unwrap(), "--", "true"]), 1);
}

#[test]
fn a_damaged_region_file_gives_an_error_and_no_crash() {
    let dir = directory();
    let file = dir.path().join("region");
    let region = file.to_str().unwrap();
    said(&run(&["--region", region, "--", "sh", "-c", "echo x >$LIGHTPATH/f"]));
    let length = fs::metadata(&file).unwrap().len();
    let truncated = dir.path().join("truncated");
    let mut head = vec![0; 4096];
    std::io::Read::read_exact(&mut fs::File::open(&file).unwrap(), &mut head).unwrap();
    fs::write(&truncated, &head).unwrap();
    refused(&run(&["--region", truncated.to_str().unwrap(), "--", "true"]), 1);
    for at in [0, 8, 16, 64, 128] {
        let mut damaged = head.clone();
        damaged[at..at + 8].fill(0x5a);
        let path = dir.path().join(format!("damaged{at}"));
        fs::write(&path, &damaged).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        let output = run(&["--region", path.to_str().unwrap(), "--", "sh", "-c", "ls $LIGHTPATH"]);
        assert_eq!(output.status.signal(), None, "damage at {at}: {output:?}");
        assert!(
            output.status.code() != Some(139) && output.status.code() != Some(135),
            "damage at {at}: {output:?}"
        );
    }
}

#[test]
fn a_full_file_system_says_so_and_recovers() {
    let script = "cd $LIGHTPATH; head -c 20M /dev/zero >big; echo $?; rm big; head -c 1M /dev/zero >small; echo $?; stat -c %s small";
    let output = run(&["--size", "8M", "--", "bash", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n0\n1048576\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left on device"), "{output:?}");
}

/// The loader writes to the kernel's descriptor, before the gate starts.
#[test]
fn what_the_loader_says_does_not_reach_a_file_of_a_mount() {
    let script = "cd $LIGHTPATH; d=$(mktemp -d -p /tmp); printf 'int f(void) { return 0; }' | gcc -x c - -shared -o $d/libf.so
        printf 'int f(void); int main(void) { return f(); }' | gcc -x c - -x none -o $d/p $d/libf.so; rm $d/libf.so
        $d/p 2>log; echo $?; wc -c <log; $d/p 2>&1 | grep -c 'cannot open shared object file'; rm -r $d";
    let output = run(&["--", "bash", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "127\n0\n1\n", "{output:?}");
}

#[test]
fn statistics_go_to_standard_error() {
    let output = run(&[
        "--stats",
        "--",
        "sh",
        "-c",
        "dd if=/dev/zero of=$LIGHTPATH/f bs=1 count=1000 status=none; cat $LIGHTPATH/f | wc -c",
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1000\n");
    let table = String::from_utf8_lossy(&output.stderr);
    let write = table.lines().find(|line| line.contains("write")).expect("a line for write");
    let numbers: Vec<u64> = write
        .split(|c: char| !c.is_ascii_digit() && c != ',')
        .filter_map(|w| w.replace(',', "").parse().ok())
        .collect();
    assert!(numbers.iter().any(|&n| n >= 1000), "{table}");
}

#[test]
fn the_binary_alone_is_enough() {
    let dir = directory();
    let copy = dir.path().join("copied");
    fs::copy(binary::lightpath().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(&copy);
    command.env_clear().env("PATH", program::search_path()).env("XDG_CACHE_HOME", dir.path().join("cache"));
    command.args(["run", "--", "sh", "-c", "echo works >$LIGHTPATH/f; cat $LIGHTPATH/f"]).current_dir("/");
    assert_eq!(said(&command.output().unwrap()), "works\n");
}

#[test]
fn without_a_home() {
    let mut command = Command::new(binary::lightpath().unwrap());
    command.env_clear().args([
        "run",
        "--",
        "/bin/sh",
        "-c",
        "/bin/echo works >$LIGHTPATH/f; /bin/cat $LIGHTPATH/f",
    ]);
    assert_eq!(said(&command.output().unwrap()), "works\n");
}

#[test]
fn few_descriptors() {
    for limit in [4, 5, 6, 8, 16] {
        refused(&shell(&format!("ulimit -n {limit}; exec \"$LP\" run -- true")), 1);
    }
    let output = shell("ulimit -n 64; \"$LP\" run -- sh -c 'cd $LIGHTPATH; echo x >f; cat f'");
    assert_eq!(said(&output), "x\n");
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let output = shell(
        "\"$LP\" run -- sh -c 'ls -1 /proc/self/fd 2>/dev/null | head -1; [ -e /proc/self/fd/0 ] && echo open || echo closed' <&-",
    );
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("closed\n"), "{output:?}");
}

#[test]
fn a_broken_pipe_ends_it_quietly() {
    let output = shell("\"$LP\" run -- yes | head -1; echo ${PIPESTATUS[0]}");
    assert_eq!(said(&output), "y\n141\n");
}

#[test]
fn a_small_stack_is_enough() {
    let output = shell(
        r#"for size in 64 80 128 256; do
               (ulimit -S -s $size; "$LP" run -- sh -c 'echo a >$LIGHTPATH/f; cat $LIGHTPATH/f; ulimit -s')
           done; ulimit -s 80; "$LP" run --stats -- true 2>/dev/null && echo hard"#,
    );
    assert_eq!(said(&output), "a\n64\na\n80\na\n128\na\n256\nhard\n");
}

#[test]
fn signals_reach_the_command() {
    let script = r#"coproc "$LP" run -- sh -c 'trap "echo trapped; exit 5" TERM; echo up; while :; do :; done'
        run=$COPROC_PID; exec 4<&"${COPROC[0]}"; read -r line <&4; echo "$line"; kill $run; cat <&4; wait $run; echo $?"#;
    assert_eq!(said(&shell(script)), "up\ntrapped\n5\n");
}

/// The output of a terminal session, with and without Lightpath.
fn terminal(command: &str) -> (String, String) {
    program::require(&["script"]).unwrap();
    let typed = |prefix: &str| {
        let output =
            shell(&format!("script -qec {} /dev/null </dev/null", quoted(&format!("{prefix}{command}"))));
        String::from_utf8_lossy(&output.stdout).replace('\r', "")
    };
    (typed(""), typed(&format!("{} run -- ", binary::lightpath().unwrap().display())))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[test]
fn a_terminal_is_a_terminal() {
    let (without, with) = terminal(
        "bash --norc -c '[ -t 0 ] && echo in; [ -t 1 ] && echo out; stty size; ps -o tpgid= -o pgid= -p $$ | { read a b; [ $a = $b ] && echo foreground; }'",
    );
    assert!(without.contains("in\nout\n"), "{without}");
    assert_eq!(with, without);
}

#[test]
fn job_control_works() {
    let (without, with) = terminal(
        "bash --norc -ic 'set -m; { sleep 60 & } 2>/dev/null; kill -STOP %1; sleep 0.3; jobs %1 | tr -s \" \"; bg %1; jobs -r | wc -l; kill %1; wait %1; echo $?; (exit 3); echo $?'",
    );
    assert!(without.contains("Stopped") && without.contains("143"), "{without}");
    assert_eq!(with, without);
}

#[test]
fn a_run_inside_a_run_is_apart() {
    let output = shell(
        r#""$LP" run -- sh -c 'echo outer >$LIGHTPATH/f; "$LP" run --at /inner -- sh -c "ls \$LIGHTPATH; echo inner >/inner/g; cat /inner/g"; cat $LIGHTPATH/f'"#,
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with("outer\n"), "{output:?}");
}

#[test]
fn nothing_is_left_behind() {
    let dir = directory();
    let mut command = lightpath();
    command.env("TMPDIR", dir.path()).args(["run", "--", "sh", "-c", "echo x >$LIGHTPATH/f; kill -9 $$"]);
    assert!(!command.output().unwrap().status.success());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn users_of_a_run_share_fifos_and_sockets() {
    // Without root there is one user, and permissions deny nothing to root.
    let root = rustix::process::geteuid().is_root();
    let other = if root { "setpriv --reuid 65534 --regid 65534 --clear-groups" } else { "" };
    let denied = if root { "denied\n" } else { "" };
    let script = r#"umask 077; cd $LIGHTPATH; mkdir -m 777 d; cd d
        ready() { for i in $(seq 500); do [ -S ready ] && return; sleep 0.02; done; echo none; kill $(jobs -p); exit; }
        mkfifo -m 666 p; mkfifo q
        $OTHER sh -c 'echo text >p' & timeout 20 cat p; wait
        $OTHER mkfifo r; $OTHER sh -c 'echo back >r' & timeout 20 cat r; wait
        [ -z "$OTHER" ] || $OTHER sh -c 'echo x >q' 2>/dev/null || echo denied
        listen='use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die $!;
            rename $ARGV[0], "ready"; print $s->accept->getline'
        connect='use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => "ready") or die "denied\n";
            print $s $ARGV[0]'
        $OTHER perl -e "$listen" s & ready; perl -e "$connect" "to other
"; wait; rm ready
        (umask 0; exec perl -e "$listen" s) & ready
        $OTHER perl -e "$connect" "from other
"; wait; rm ready
        perl -e "$listen" s & ready
        [ -z "$OTHER" ] || $OTHER perl -e "$connect" x 2>&1; perl -e "$connect" "own
"; wait"#;
    let mut command = lightpath();
    command.env("OTHER", other).args(["run", "--", "bash", "-c", script]);
    let expected = format!("text\nback\n{denied}to other\nfrom other\n{denied}own\n");
    assert_eq!(said(&command.output().unwrap()), expected);
}

#[test]
fn users_share_no_fifos_if_the_cache_has_a_long_path() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = directory();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let long = place.path().join("n".repeat(60));
    let script = "cd $LIGHTPATH; mkfifo -m 666 p; exec 3<>p
                  setpriv --reuid 65534 --regid 65534 --clear-groups sh -c ': 3<>p' 2>&1 | grep -o 'Permission.*'";
    let mut command = lightpath();
    command.env("XDG_CACHE_HOME", long).args(["run", "--", "bash", "-c", script]);
    assert_eq!(said(&command.output().unwrap()), "Permission denied\n");
}

/// A run that has a cache directory of its own.
fn with_cache(cache: &Path, script: &str) -> Output {
    fs::set_permissions(cache, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = lightpath();
    command.env("XDG_CACHE_HOME", cache).env("CACHE", cache.join("lightpath"));
    command.args(["run", "--", "bash", "-c", script]).output().unwrap()
}

#[test]
fn a_cache_with_too_long_a_path_is_not_used() {
    let place = directory();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let home = place.path().join("home");
    let within = |bytes: usize| {
        let mut path = place.path().to_owned();
        while path.as_os_str().len() < bytes {
            path.push("n".repeat((bytes - path.as_os_str().len()).min(200)));
        }
        path
    };
    for (bytes, used) in [(700, true), (720, false), (1000, false), (3000, false)] {
        let mut command = lightpath();
        command.env("XDG_CACHE_HOME", within(bytes)).env("HOME", &home);
        let script = "mkfifo $LIGHTPATH/p; grep -qF $HOME /proc/self/maps && echo home || echo long";
        let output = command.args(["run", "--", "sh", "-c", script]).output().unwrap();
        assert_eq!(said(&output), if used { "long\n" } else { "home\n" }, "{bytes}");
    }
}

#[test]
fn a_launcher_that_was_replaced_during_the_run_is_named() {
    program::require(&["python3"]).unwrap();
    let mut of_another_version = lightpath();
    of_another_version.args(["sites", "--bundle", "/nowhere/sites-0-0", "--build"]);
    of_another_version.arg(binary::lightpath().unwrap());
    assert_eq!(of_another_version.output().unwrap().status.code(), Some(4));
    assert!(!Path::new("/nowhere").exists());
    for (replace, why) in [
        (
            "printf '#!/bin/sh\\nexit 4\\n' >$COPY.new; chmod +x $COPY.new; mv $COPY.new $COPY",
            "has been replaced by another version",
        ),
        ("rm $COPY", "cannot be executed any more"),
    ] {
        let place = directory();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = place.path().join("launcher");
        fs::copy(binary::lightpath().unwrap(), &copy).unwrap();
        let script = format!("{{ {replace}; }} && exec python3 -c 'import _ssl'");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "\"$COPY\" run -- sh -c \"$SCRIPT\""]).env("SCRIPT", script).env("COPY", &copy);
        let output = command.env("XDG_CACHE_HOME", place.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let clear = said.lines().count() == 1 && said.contains(&format!("{} {why}", copy.display()));
        assert!(clear && !output.status.success(), "{output:?}");
    }
}

#[test]
fn loop_devices_read_a_copy() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return;
    }
    program::require(&["busybox", "mkfs.ext2", "mount", "umount"]).unwrap();
    let place = directory();
    let script = r#"cd $LIGHTPATH; mkdir tree; echo text >tree/f; truncate -s 1M image; mkfs.ext2 -q -d tree image
        for mount in "busybox mount" mount; do
            timeout 20 $mount -o loop image $PLACE 2>/dev/null; echo $?
            cat $PLACE/f; { echo x >$PLACE/f; } 2>&1 | grep -o 'Read-only.*'; umount $PLACE
        done"#;
    let mut command = Command::new("unshare");
    command.arg("-m").arg(binary::lightpath().unwrap()).args(["run", "--", "bash", "-c", script]);
    command.env("XDG_CACHE_HOME", binary::cache_home().unwrap()).env("PATH", program::search_path());
    let output = command.env("PLACE", place.path()).output().unwrap();
    assert_eq!(said(&output), "0\ntext\nRead-only file system\n".repeat(2));
}

#[test]
fn fifos_and_sockets_need_no_writable_cache() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let script = r#"cd $LIGHTPATH
        export listen='use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die $!;
            rename $ARGV[0], "$ARGV[0].ready"; print $s->hostpath, " ", $s->accept->getline'
        export connect='use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => "$ARGV[0].ready") or die $!;
            print $s "$ARGV[1]
"'
        ready() { for i in $(seq 500); do [ -S $1.ready ] && return; sleep 0.02; done; echo none; }
        read_only() {
            mount --bind $CACHE $CACHE; mount -o remount,bind,ro $CACHE
            timeout 10 cat in; timeout 10 head -1 before; perl -e "$connect" s inside; echo text >out
            perl -e "$listen" t
        }
        export -f read_only
        mkfifo before in out; exec 3<>before; echo kept >&3
        perl -e "$listen" s & ready s
        unshare -m bash -c read_only & timeout 10 sh -c 'echo text >in; cat out'
        ready t; perl -e "$connect" t outside; wait"#;
    let cache = directory();
    let output = with_cache(cache.path(), script);
    let mut lines: Vec<&str> = said(&output).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["kept", "s inside", "t outside", "text", "text"]);
}

#[test]
fn a_sandbox_with_its_own_tmp_has_its_own_fifos() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let script = r#"cd $LIGHTPATH; mkfifo p
        own_tmp() {
            mount --bind $CACHE $CACHE; mount -o remount,bind,ro $CACHE; mount -t tmpfs none /tmp
            exec 3<>p; echo text >&3; echo >written; until [ -e read ]; do sleep 0.02; done
        }
        export -f own_tmp
        unshare -m bash -c own_tmp & until [ -e written ]; do sleep 0.02; done
        timeout 1 cat p; echo $?; echo >read; wait"#;
    let cache = tempfile::tempdir_in("/var/tmp").unwrap();
    assert_eq!(said(&with_cache(cache.path(), script)), "124\n");
}

#[test]
fn fifos_and_sockets_need_no_cache() {
    let script = r#"cd $LIGHTPATH; mv $CACHE/nodes $CACHE/.. && touch $CACHE/nodes
        mkfifo p; timeout 10 sh -c 'echo text >p & cat p'
        python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("s"); print(s.getsockname())'"#;
    let cache = directory();
    assert_eq!(
        said(&with_cache(cache.path(), script)),
        "text
s
"
    );
}

#[test]
fn fifos_and_sockets_leave_nothing_behind() {
    let cache = directory();
    let script = "cd $LIGHTPATH; mkfifo p q; cat p & echo text >p; wait; (sleep 0.2; echo late >q) & \
                  python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'; exec cat q";
    let mut command = lightpath();
    command.env("XDG_CACHE_HOME", cache.path()).args(["run", "--", "bash", "-c", script]);
    assert_eq!(said(&command.output().unwrap()), "text\nlate\n");
    let left = fs::read_dir(cache.path().join("lightpath/nodes")).unwrap();
    assert_eq!(left.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_program_in_a_mount_is_copied_once() {
    let script = "cp $(command -v sleep) /light/s && /light/s 0
                  for i in 1 2 3; do
                      /light/s 60 & echo $!
                      [ $i = 2 ] && until [ \"$(cat /proc/$!/comm)\" = s ]; do sleep 0.05; done && cp /light/s /light/t && echo >> /light/t && mv /light/t /light/s
                  done; wait";
    let mut command = lightpath();
    let mut child = command.args(["run", "--", "bash", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let pids: Vec<String> = lines.take(3).collect::<Result<_, _>>().unwrap();
    let inodes: Vec<String> = pids.iter().map(|pid| text_of(pid, "/light/s")).collect();
    let killed = Command::new("kill").args(&pids).status().unwrap();
    child.wait().unwrap();
    assert!(killed.success());
    assert_eq!(inodes[0], inodes[1], "the file has not changed");
    assert_ne!(inodes[1], inodes[2], "the file has changed");
}

#[test]
fn a_large_program_in_a_mount_is_not_copied() {
    let script = "cd /light; head -c 5000000 /dev/urandom >part
                  echo '__asm__(\".section .rodata\\n.incbin \\\"part\\\"\\n.text\\n\");
                        int pause(void); int main(void) { return pause(); }' >s.c
                  cc -w s.c -o s && { /light/s & echo $!; wait; }";
    let mut command = lightpath();
    let mut child = command.args(["run", "--", "bash", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let file = executed(&pid, "/light/s");
    let killed = Command::new("kill").arg(&pid).status().unwrap();
    child.wait().unwrap();
    assert!(killed.success());
    assert!(file.len() >= 4096 && file.blocks() < 200, "{} {}", file.len(), file.blocks());
}
