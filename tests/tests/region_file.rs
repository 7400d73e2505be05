//! Regions in files, and which processes count as alive in them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lp_tests::{binary, program};
use tempfile::TempDir;

fn set(command: &mut Command) -> &mut Command {
    command.env("LP", binary::lightpath().unwrap()).env("LC_ALL", "C").stdin(Stdio::null());
    command.env("XDG_CACHE_HOME", binary::cache_home().unwrap()).env("PATH", program::search_path())
}

/// Runs a shell script with `$LP` naming the command, in `directory`.
fn shell(directory: &Path, script: &str) -> Output {
    let mut command = Command::new("/bin/bash");
    set(command.args(["--norc", "-c", script])).current_dir(directory).output().unwrap()
}

#[track_caller]
fn said(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "standard error");
    str::from_utf8(&output.stdout).unwrap()
}

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("lp-region-file-").tempdir().unwrap()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// The descriptors of a process whose targets start with `target`.
fn numbers(pid: u32, target: &str) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let leads = entries
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with(target)));
    leads.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Runs `life.py`, tells it the numbers of the gate's own descriptors, which it cannot know, and returns its
/// findings.
fn life(region: Option<&Path>) -> String {
    let mut command = Command::new(binary::lightpath().unwrap());
    set(&mut command).arg("run").stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(region) = region {
        command.arg("--region").arg(region);
    }
    command.args(["--", "python3", "-S"]).arg(script("life.py")).arg("/light");
    let mut child = command.arg(region.unwrap_or(Path::new("-"))).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let target = region.map_or("/memfd:lightpath (deleted)", |region| region.to_str().unwrap());
    let mut own = numbers(child.id(), target);
    own.extend(numbers(child.id(), "/memfd:lightpath-life:"));
    assert_eq!(own.len(), 2, "the region's descriptor and the life file's");
    writeln!(child.stdin.take().unwrap(), "{}", own.join(" ")).unwrap();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    text
}

#[test]
fn no_program_gets_or_loses_the_sign_of_life() {
    assert_eq!(life(None), "mine\nlock kept\nsibling 0 mine\n");
    let dir = directory();
    let file = fs::canonicalize(dir.path()).unwrap().join("region");
    assert_eq!(life(Some(&file)), "mine\nlock kept\nsibling 0 mine\n");
}

#[test]
fn who_opens_and_closes_the_regions_file_stays_alive() {
    let dir = directory();
    let script = r#""$LP" run --region r -- bash -c '
        exec 7<>/light/f; echo hello >&7
        exec 8<r; exec 8<&-
        df /light >/dev/null
        echo again >&7 && cat /light/f'"#;
    assert_eq!(said(&shell(dir.path(), script)), "hello\nagain\n");
}

#[test]
fn runs_of_one_file_see_each_others_life_and_death() {
    let dir = directory();
    // The first run goes on while one of its processes holds a lock and another was killed that held one.
    let script = r#"mkfifo ready done
        "$LP" run --region r -- bash -c '
            cd /light; : >alive; : >dead
            exec 5<alive; flock 5
            { bash -c "exec 6<dead; flock 6; kill -9 \$\$"; } 2>/dev/null
            exec 8<'"$PWD"'/r; exec 8<&-
            echo >'"$PWD"'/ready; read <'"$PWD"'/done' &
        read <ready
        "$LP" run --region r -- bash -c '
            cd /light
            flock -n alive true || echo alive is held
            flock -n dead true && echo dead is free
            exec 7<>mine; flock 7
            "$0" run --region '"$PWD"'/r -- true 2>&1 | cut -c1-30' "$LP"
        echo >done; wait
        "$LP" run --region r -- flock -n /light/alive echo free at last"#;
    let output = shell(dir.path(), script);
    assert_eq!(said(&output), "alive is held\ndead is free\nlightpath: already inside a ru\nfree at last\n");
}

#[test]
fn a_run_whose_processes_are_out_of_sight_is_not_joined() {
    let dir = directory();
    let able = Command::new("unshare").args(["-Urpf", "--mount-proc", "true"]).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no pid namespace of one's own here");
        return;
    }
    let script = r#"mkfifo ready done
        "$LP" run --region r -- bash -c 'echo >ready; read <done; echo ended' &
        read <ready
        unshare -Urpf --mount-proc "$LP" run --region r -- true 2>&1 | cut -d, -f1
        echo >done; wait
        unshare -Urpf --mount-proc "$LP" run --region r -- echo joined"#;
    let refused = "lightpath: r is in use by processes that cannot be seen from here\n";
    assert_eq!(said(&shell(dir.path(), script)), format!("{refused}ended\njoined\n"));
}

/// Mounts a small tmpfs on `small`, in a mount namespace of its own, and runs the script there.
fn on_small_disk(directory: &Path, size: &str, script: &str) -> Option<Output> {
    let able = Command::new("unshare").args(["-Urm", "true"]).status();
    if !able.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no mount namespace of one's own here");
        return None;
    }
    let inner = format!("mkdir small; mount -t tmpfs -o size={size} none small && cd small\n{script}");
    fs::write(directory.join("script"), inner).unwrap();
    Some(shell(directory, "unshare -Urm /bin/bash --norc script 2>&1"))
}

/// Uses up data, names and processes in turn; then space is freed and everything goes on. `$RUN` runs a
/// command.
const FILL: &str = r#"
    $RUN --region r --size 1G -- bash -c '
        cd /light; mkdir d
        dd if=/dev/zero of=f bs=4k count=20000 2>&1 | grep -o "No space left on device"
        head -c 100M /dev/zero 2>&1 >>f | grep -o "No space left on device"
        for i in $(seq 1 4000); do : > d/a-name-that-does-not-fit-into-an-entry-$i || break; done 2>&1 | grep -o "No space left on device"
        for i in 1 2 3 4 5 6 7 8; do (sleep 0.1; : <f) & done; wait; echo children
        ls d >/dev/null; stat -c %F f; cmp -n 30000000 f /dev/zero && echo zeros
        rm f; head -c 5M /dev/zero >g; stat -c %s g'
    $RUN --region r -- sh -c 'cd /light; stat -c %s g; echo more >h; cat h'
    head -c 100M /dev/zero 2>/dev/null >filler
    $RUN --region r -- sh -c 'cd /light; cat h; rm g; echo again >i; cat i'
    $RUN --region other -- true
    echo $?"#;

fn what_a_full_disk_says(output: &Output) {
    let full = "No space left on device\n";
    let expected = format!(
        "{full}{full}{full}children\nregular file\nzeros\n5242880\n5242880\nmore\nmore\nagain\n\
         lightpath: other: its file system has no room for it\n1\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn a_full_host_file_system_is_enospc_and_no_more() {
    let dir = directory();
    let script = format!("RUN=\"$LP run\"\n{FILL}");
    let Some(output) = on_small_disk(dir.path(), "48M", &script) else { return };
    what_a_full_disk_says(&output);
}

#[test]
fn so_it_is_where_no_room_can_be_asked_for() {
    let dir = directory();
    let without = self::script("without_fallocate.py");
    let script = format!("RUN=\"python3 -S {} $LP run\"\n{FILL}", without.display());
    let Some(output) = on_small_disk(dir.path(), "48M", &script) else { return };
    what_a_full_disk_says(&output);
}

/// Descriptors with large numbers, and a child that has them, while the disk is full and after.
const LARGE_NUMBERS: &str = r#"
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
def fill():
    with open("filler", "wb", 0) as filler:
        for size in [1 << 20, 4096]:
            try:
                while filler.write(bytes(size)): pass
            except OSError as error: pass
def attempt(what, *arguments):
    try:
        done = what(*arguments)
        if what == os.fork and not done: os._exit(0)
        if what == os.fork: os.waitpid(done, 0)
        return "yes"
    except OSError as error: return os.strerror(error.errno)
f = os.open("/light/f", os.O_RDWR | os.O_CREAT)
null = os.open("/dev/null", os.O_RDWR)
fill()
for number in [900, 1500, 9000, 19000]: print(number, attempt(os.dup2, f, number), attempt(os.dup2, null, number))
print("fork", attempt(os.fork))
os.unlink("filler")
print(19000, attempt(os.dup2, f, 19000), os.write(19000, b"written"))
fill()
print(19001, attempt(os.dup2, f, 19001), os.pread(19001, 9, 0))
print("fork", attempt(os.fork))
os.unlink("filler")
print("fork", attempt(os.fork))"#;

#[test]
fn large_descriptors_on_a_full_host_file_system_are_enospc() {
    let dir = directory();
    fs::write(dir.path().join("large.py"), LARGE_NUMBERS).unwrap();
    let script = r#""$LP" run --region r --size 1G -- python3 -S ../large.py"#;
    let Some(output) = on_small_disk(dir.path(), "24M", script) else { return };
    let full = "No space left on device";
    let expected = format!(
        "900 yes yes\n1500 {full} yes\n9000 {full} yes\n19000 {full} yes\nfork yes\n\
         19000 yes 7\n19001 yes b'written'\nfork {full}\nfork yes\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn a_copy_of_a_region_file_has_its_room_again() {
    let dir = directory();
    let script = r#"
        "$LP" run --region r -- sh -c 'cd /light; head -c 3M /dev/zero >f; echo x >g'
        cp --sparse=always r copy
        head -c 100M /dev/zero 2>/dev/null >filler
        "$LP" run --region copy -- true; echo $?
        rm filler
        "$LP" run --region copy -- sh -c 'cd /light; head -c 100M /dev/zero 2>/dev/null >filler; head -c 3M /dev/urandom | dd of=f bs=4k conv=notrunc 2>/dev/null; cat g; stat -c %s f'"#;
    let Some(output) = on_small_disk(dir.path(), "24M", script) else { return };
    let expected = "lightpath: copy: its file system has no room for it\n1\nx\n3145728\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn a_file_that_is_cut_short_while_in_use_ends_its_users_with_a_line() {
    let dir = directory();
    // A process that meets the truncation first ends, before its read or after, so the shell keeps the pipe
    // open itself.
    let script = r#"mkfifo ready done; exec 9<>done
        "$LP" run --region r -- bash -c 'echo x >/light/f; echo >'"$PWD"'/ready; read <&9; echo y >/light/f; echo survived' &
        read <ready
        : >r; echo >done
        wait $!; echo $?"#;
    let output = shell(dir.path(), script);
    let line = "lightpath: somebody cut the region's file short while it was in use: what it held is lost\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), line);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "126\n");
}

#[test]
fn what_is_synced_is_written_out_and_in_memory_costs_no_call() {
    let dir = directory();
    let run = |region: &str| {
        let synced = script("synced.py");
        shell(dir.path(), &format!(r#""$LP" run {region} -- python3 -S {} /light"#, synced.display()))
    };
    let outcomes = |how: &str| {
        let calls = ["fsync", "fdatasync", "syncfs", "msync"].map(|call| format!("{call} {how}\n"));
        calls.concat() + "msync of a private mapping done\n"
    };
    assert_eq!(said(&run("")), outcomes("done"));
    assert_eq!(said(&run("--region r")), outcomes("Input/output error"));
}
