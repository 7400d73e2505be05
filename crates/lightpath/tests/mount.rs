//! What a run's mounts hold: several of them, programs in them, what a region file keeps, what `--stats`
//! counts.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lp_abi::Fd;
use lp_region::{Region, RunId};

fn run(options: &[&str], command: &[&str]) -> Output {
    let mut run = Command::new(env!("CARGO_BIN_EXE_lightpath"));
    run.args(["run", "--size", "64M"])
        .args(options)
        .arg("--")
        .args(command)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a shell script; its status, output and complaints.
fn sh(options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let output = run(options, &["sh", "-c", script]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn region_in(dir: &Path) -> String {
    dir.join("region").to_str().unwrap().to_owned()
}

fn said(text: &str) -> (Option<i32>, String, String) {
    (Some(0), text.to_owned(), String::new())
}

#[test]
fn a_file_system_in_memory_is_empty_each_time() {
    let script = "ls -A $LIGHTPATH; echo one > $LIGHTPATH/file; cat $LIGHTPATH/file";
    assert_eq!(sh(&[], script), said("one\n"));
    assert_eq!(sh(&[], script), said("one\n"));
    assert!(!Path::new("/light/file").exists());
}

#[test]
fn each_mount_has_a_tree_of_its_own() {
    let script =
        "echo $LIGHTPATH; echo 1 > /one/file; echo 2 > /two/file; cat /one/file /two/file; ls /one /two";
    let expected = "/one\n1\n2\n/one:\nfile\n\n/two:\nfile\n";
    assert_eq!(sh(&["--at", "/one", "--at", "/two"], script), said(expected));
}

#[test]
fn a_directory_of_the_host_is_covered_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hidden"), "host").unwrap();
    let at = dir.path().to_str().unwrap();
    assert_eq!(
        sh(&["--at", at], "ls -A $LIGHTPATH; echo new > $LIGHTPATH/shown; ls -A $LIGHTPATH"),
        said("shown\n")
    );
    let names: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["hidden"]);
}

#[test]
fn a_region_file_keeps_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_in(dir.path());
    let keep = |script| sh(&["--region", &region], script);
    assert_eq!(keep("mkdir $LIGHTPATH/dir; echo kept > $LIGHTPATH/dir/file"), said(""));
    assert_eq!(keep("cat $LIGHTPATH/dir/file; ln $LIGHTPATH/dir/file $LIGHTPATH/link"), said("kept\n"));
    assert_eq!(keep("stat -c '%h %s' $LIGHTPATH/link"), said("2 5\n"));
    // The tree belongs to the region, not to the path where a run shows it.
    assert_eq!(sh(&["--region", &region, "--at", "/elsewhere"], "cat /elsewhere/dir/file"), said("kept\n"));
}

#[test]
fn runs_share_a_region_while_they_last() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_in(dir.path());
    let runs: Vec<_> = (0..4)
        .map(|number| {
            let region = region.clone();
            std::thread::spawn(move || {
                let script = format!(
                    "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >> $LIGHTPATH/all; echo $i > $LIGHTPATH/{number}-$i; done"
                );
                sh(&["--region", &region], &script)
            })
        })
        .collect();
    for run in runs {
        assert_eq!(run.join().unwrap(), said(""));
    }
    let (_, counts, complaints) = sh(&["--region", &region], "cd $LIGHTPATH; wc -l < all; ls | wc -l");
    assert_eq!((counts.split_whitespace().collect::<Vec<_>>(), &*complaints), (vec!["40", "41"], ""));
}

/// The kernel closes the descriptors of a process that ends a while after it has stopped showing them in
/// /proc.
#[test]
fn a_run_begins_as_the_last_process_of_another_ends() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_in(dir.path());
    assert_eq!(sh(&["--region", &region], "echo kept > $LIGHTPATH/file"), said(""));
    let [mapped, held] = [(); 2].map(|()| File::options().read(true).write(true).open(&region).unwrap());
    let opened = Region::open(Fd::new(mapped.as_raw_fd())).unwrap();
    opened.with_fd(Fd::new(held.as_raw_fd())).hold_run(RunId(1)).unwrap();
    let ends = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(200));
        drop(held);
    });
    assert_eq!(sh(&["--region", &region], "cat $LIGHTPATH/file"), said("kept\n"));
    ends.join().unwrap();
}

#[test]
fn what_a_killed_run_wrote_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_in(dir.path());
    let output = run(&["--region", &region], &["sh", "-c", "echo written > $LIGHTPATH/file; kill -9 $$"]);
    assert_eq!(output.status.code(), None);
    let check = "cat $LIGHTPATH/file; rm $LIGHTPATH/file; echo again > $LIGHTPATH/file; cat $LIGHTPATH/file";
    assert_eq!(sh(&["--region", &region], check), said("written\nagain\n"));
}

#[test]
fn a_program_in_a_mount_is_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_in(dir.path());
    let install = "mkdir $LIGHTPATH/bin; cp /bin/echo $LIGHTPATH/bin/say
        printf '#!/bin/sh\\necho script $1\\nexit 7\\n' > $LIGHTPATH/bin/script; chmod +x $LIGHTPATH/bin/script
        printf 'x' > $LIGHTPATH/bin/plain";
    assert_eq!(sh(&["--region", &region], install), said(""));
    let status = |command: &[&str]| {
        let output = run(&["--region", &region], command);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(status(&["/light/bin/say", "hello"]), (Some(0), "hello\n".to_owned()));
    assert_eq!(status(&["/light/bin/script", "one"]), (Some(7), "script one\n".to_owned()));
    assert_eq!(status(&["/light/bin/none"]), (Some(127), String::new()));
    assert_eq!(status(&["/light/bin/plain"]), (Some(126), String::new()));
    let search = format!("PATH=/light/bin:{}", std::env::var("PATH").unwrap());
    let output = run(&["--region", &region], &["env", &search, "say", "found"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "found\n");
}

#[test]
fn a_process_that_changes_users_stays_covered() {
    // SAFETY: geteuid has no effect.
    if unsafe { libc::geteuid() } != 0 {
        return; // Only root may change users.
    }
    let script = "echo mine > $LIGHTPATH/mine; chmod 600 $LIGHTPATH/mine
        setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '
            cat $LIGHTPATH/mine || echo denied; echo theirs > $LIGHTPATH/theirs; stat -c %u $LIGHTPATH/theirs
            perl -e \"open(F, \\\"$LIGHTPATH/theirs\\\") and print <F>\"' 2>/dev/null";
    assert_eq!(sh(&[], script), said("denied\n65534\ntheirs\n"));
}

#[test]
fn stats_tell_answered_calls_from_passed_ones() {
    let (status, output, table) =
        sh(&["--stats"], "dd if=/dev/urandom of=$LIGHTPATH/file bs=10 count=1000 status=none");
    assert_eq!((status, &*output), (Some(0), ""));
    let numbers = |call: &str| -> Vec<u64> {
        let line =
            table.lines().find(|line| line.split_whitespace().next() == Some(call)).unwrap_or_default();
        line.split_whitespace().skip(1).map(|number| number.replace(',', "").parse().unwrap()).collect()
    };
    // dd writes 1,000 times to the mount, and reads as often from the host.
    assert_eq!((numbers("write")[0], numbers("write")[2]), (1000, 10_000), "{table}");
    assert!(numbers("read")[1] >= 1000, "{table}");
    assert!(table.lines().last().unwrap().starts_with("all "), "{table}");
}

#[test]
fn the_limit_is_enospc_and_nothing_else() {
    let script = "cd $LIGHTPATH; dd if=/dev/zero of=big bs=64k 2>&1 | grep -o 'No space left on device'
        rm big; dd if=/dev/zero of=big bs=64k count=100 2>/dev/null && stat -c %s big";
    assert_eq!(sh(&[], script), said("No space left on device\n6553600\n"));
}

#[test]
fn a_run_inside_a_run_is_refused() {
    let own = env!("CARGO_BIN_EXE_lightpath");
    let (status, _, complaint) = sh(&[], &format!("{own} run -- true"));
    assert_eq!(status, Some(1));
    assert_eq!(
        complaint,
        "lightpath: already inside a run: start the command as it is, it sees the file system\n"
    );
}

#[test]
fn the_environment_shows_the_mount_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().to_str().unwrap();
    let run = |user_preload: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lightpath"));
        command.args(["run", "--", "env"]).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home);
        if !user_preload.is_empty() {
            command.env("LD_PRELOAD", user_preload);
        }
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&command.output().unwrap().stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let home = format!("HOME={home}");
    assert_eq!(run(""), [&home, "LIGHTPATH=/light", "PATH=/usr/bin:/bin"]);
    assert_eq!(run("libm.so.6"), [&home, "LD_PRELOAD=libm.so.6", "LIGHTPATH=/light", "PATH=/usr/bin:/bin"]);
}

#[test]
fn the_directory_above_lists_a_mount() {
    let script = "ls -1 / | grep -x one; ls -1 / | grep -c -x two; ls -di /one /two >/tmp/$$; \
                  ls -ai1 / | grep -E ' (one|two)$' | tr -s ' ' | sed 's/^ //;s/ / \\//' | diff - /tmp/$$ && echo same; rm /tmp/$$";
    assert_eq!(sh(&["--at", "/one", "--at", "/two"], script), said("one\n1\nsame\n"));
}

#[test]
fn a_mount_needs_no_directory_above_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("none/m");
    let script = "cd $LIGHTPATH; echo text >f; cat $LIGHTPATH/f; pwd -P | grep -q none/m$ && echo here
        stat .. 2>&1 | grep -o 'No such file.*'; ls";
    let expected = "text\nhere\nNo such file or directory\nf\n";
    assert_eq!(sh(&["--at", at.to_str().unwrap()], script), said(expected));
    assert!(!dir.path().join("none").exists());
}

/// What they lead to does not exist outside of the run.
#[test]
fn descriptors_seen_from_outside_of_the_run_lead_nowhere() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightpath"));
    command.args([
        "run",
        "--",
        "sh",
        "-c",
        "exec 7>$LIGHTPATH/f; readlink /proc/$$/fd/7; echo $$; read line",
    ]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "/light/f");
    let link = format!("/proc/{}/fd/7", lines.next().unwrap());
    let target = std::fs::read_link(&link).unwrap();
    assert!(target.starts_with("/proc/") && target.ends_with("exe"), "{}", target.display());
    assert_eq!(std::fs::File::open(&link).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_descriptor_sent_out_of_the_run_is_an_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let receive = "import socket, os, sys, errno
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('ready', flush=True)
fd = socket.recv_fds(s.accept()[0], 10, 1)[1][0]
for call in (lambda: os.read(fd, 1), lambda: os.write(fd, b'x'), lambda: os.fstat(fd).st_size):
    try: print(call())
    except OSError as e: print(errno.errorcode[e.errno])";
    let send = "import socket, os, sys
fd = os.open(os.environ['LIGHTPATH'] + '/f', os.O_RDWR | os.O_CREAT); os.write(fd, b'text')
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); socket.send_fds(s, [b'x'], [fd]); s.recv(1)";
    let mut command = Command::new("python3");
    command.args(["-c", receive]).arg(&socket).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut outside = command.spawn().unwrap();
    let mut lines = BufReader::new(outside.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    let output = run(&[], &["python3", "-c", send, socket.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines.collect::<Vec<_>>(), ["EBADF", "EPERM", "0"]);
    outside.wait().unwrap();
}

#[test]
fn a_mount_of_the_command_line_moves_and_ends_like_others() {
    // SAFETY: geteuid has no effect.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let script = "set -e; mkdir /two/x; echo text > /one/f; mount --move /one /two/x; cat /two/x/f; test ! -e /one; \
                  grep -c ' /two/x ' /proc/self/mountinfo; ! umount /two 2>/dev/null; umount /two/x; \
                  cd /two; ! umount /two 2>/dev/null; umount -l /two; test -e x; test ! -e /two; cd /; \
                  ! grep -E ' /(one|two)' /proc/self/mountinfo; ! ls / | grep -E -x 'one|two'; echo end";
    let output = run(&["--at", "/one", "--at", "/two"], &["unshare", "-m", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "text\n1\nend\n", "{output:?}");
}
