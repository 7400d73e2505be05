//! `lightpath freeze`, `run --from`, `pack` and `unpack`.

mod trees;

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use trees::{LIST, MAKE, Trees, said, sh};

/// A run whose script has said that it is ready by a byte.
fn begun(mut command: Command) -> Child {
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    run.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    run
}

/// Lets a run end.
fn end(mut run: Child) {
    drop(run.stdin.take());
    assert!(run.wait().unwrap().success());
}

/// The pages of a sparse file that are not zero. A page of zeros may be a hole, or become one by itself.
fn pages(file: &Path) -> Vec<(i64, Vec<u8>)> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    let file = fs::File::open(file).unwrap();
    // SAFETY: lseek(2) of a descriptor that is open.
    let seek = |at: i64, whence: i32| unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
    let (mut all, mut end) = (Vec::new(), 0);
    loop {
        let at = seek(end, libc::SEEK_DATA);
        if at < 0 {
            return all;
        }
        end = seek(at, libc::SEEK_HOLE);
        let mut content = vec![0; (end - at) as usize];
        file.read_exact_at(&mut content, at as u64).unwrap();
        let pages = (at..).step_by(4096).zip(content.chunks(4096).map(<[u8]>::to_vec));
        all.extend(pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0)));
    }
}

#[test]
fn a_copy_of_a_busy_run_is_of_one_moment() {
    let trees = Trees::new("echo f > f");
    // Each pair of files is changed one after the other, so the first is ahead by one at most. Names as well.
    let writer = "cd $LIGHTPATH; mkdir $1; i=0; echo 0 > $1/a; echo 0 > $1/b; : > $1/n0; : > $1/ready; while [ ! -e stop ]; do i=$((i+1)); \
        echo $i > $1/a.new; mv $1/a.new $1/a; echo $i > $1/b.new; mv $1/b.new $1/b; mv $1/n$((i-1)) $1/n$i; done";
    let script = format!(
        "for w in 1 2 3; do sh -c '{writer}' w $w & done; for w in 1 2 3; do while [ ! -e $LIGHTPATH/$w/ready ]; do :; done; done; echo; read line; : > $LIGHTPATH/stop; wait"
    );
    let run = begun(trees.lightpath(&["run", "--size", "64M", "--", "sh", "-c", &script]));
    let check = "cd $LIGHTPATH; for w in 1 2 3; do a=$(cat $w/a); b=$(cat $w/b); [ $((a-b)) -ge 0 ] && [ $((a-b)) -le 1 ] || echo $w: $a $b; \
        [ $(ls $w | grep -c '^n') = 1 ] || ls $w; n=$(ls $w | grep '^n' | cut -c2-); [ $((b-n)) -ge 0 ] && [ $((b-n)) -le 1 ] || echo $w: $b n$n; done";
    for number in 0..5 {
        let file = trees.home.path().join(format!("frozen{number}"));
        let text = trees.says(&["freeze", &run.id().to_string(), file.to_str().unwrap()]);
        assert!(text.contains("held for"), "{text}");
        trees.says(&["fsck", file.to_str().unwrap()]);
        let before = pages(&file);
        assert_eq!(trees.says(&["run", "--from", file.to_str().unwrap(), "--", "sh", "-c", check]), "");
        assert!(pages(&file) == before);
    }
    end(run);
}

#[test]
fn what_copies_share_is_frozen_too() {
    let trees = Trees::new("echo f > f");
    let fill = "cd $LIGHTPATH; seq 100000 > a; cp a b; cp b c; printf x | dd of=c seek=70001 bs=1 conv=notrunc status=none; seq 60000 > d; cp d e; rm d; cksum * > sums; echo; read line; true";
    let run = begun(trees.lightpath(&["run", "--size", "64M", "--", "sh", "-c", fill]));
    let file = trees.home.path().join("frozen");
    let file = file.to_str().unwrap();
    trees.says(&["freeze", &run.id().to_string(), file]);
    end(run);
    assert!(trees.says(&["fsck", file]).contains(" clean: 5 names, 6 inodes, "), "nothing is shared there");
    let change = "cd $LIGHTPATH; cksum a b c e | cmp - sums; echo x >> b; cp a z; cmp a z; tail -n 1 b e";
    for how in ["--from", "--region"] {
        let seen = trees.says(&["run", how, file, "--", "sh", "-c", change]);
        assert_eq!(seen, "==> b <==\nx\n\n==> e <==\n60000\n", "{how}");
    }
    trees.says(&["fsck", file]);
}

#[test]
fn a_branch_has_all_that_was_frozen_and_is_its_own() {
    let trees = Trees::new(MAKE);
    let fill = format!(
        "cp -a . $LIGHTPATH; cd $LIGHTPATH; rm -r d; exec 3> open; rm open; echo; read line; echo late > late; {LIST}"
    );
    let run = begun(trees.lightpath(&["run", "--size", "64M", "--", "sh", "-c", &fill]));
    let file = trees.home.path().join("frozen");
    let file = file.to_str().unwrap();
    trees.says(&["freeze", &run.id().to_string(), file]);
    end(run);
    sh(&trees.copy(), "rm -r d");
    let before = pages(Path::new(file));
    let script = format!("cd $LIGHTPATH; {LIST}");
    let from = |script: &str| trees.says(&["run", "--from", file, "--", "sh", "-c", script]);
    assert_eq!(from(&script), sh(&trees.copy(), LIST));
    assert_eq!(from("cd $LIGHTPATH; rm -r a keep; echo x > numbers; cat numbers"), "x\n");
    assert_eq!(from(&script), sh(&trees.copy(), LIST));
    assert!(pages(Path::new(file)) == before);
    // Two branches at a time have nothing in common.
    let one = begun(trees.lightpath(&[
        "run",
        "--from",
        file,
        "--",
        "sh",
        "-c",
        "echo 1 > $LIGHTPATH/own; echo; read line || true",
    ]));
    assert_eq!(from("test ! -e $LIGHTPATH/own && echo alone"), "alone\n");
    end(one);
}

#[test]
fn a_session_is_frozen() {
    let trees = Trees::new(MAKE);
    trees.over("echo more >> a/one; rm -r d");
    let file = trees.home.path().join("frozen");
    let file = file.to_str().unwrap();
    trees.says(&["freeze", &trees.session(), file]);
    trees.over("rm -r a");
    let text = trees.says(&["run", "--from", file, "--", "sh", "-c", "cat $LIGHTPATH/a/one; ls $LIGHTPATH"]);
    assert!(text.starts_with("one\nmore\n") && !text.contains("\nd\n"), "{text}");
    trees.says(&["discard"]);
}

#[test]
fn a_packed_region_is_the_same() {
    let trees = Trees::new(MAKE);
    let region = trees.home.path().join("region");
    let region = region.to_str().unwrap();
    trees.says(&["run", "--region", region, "--size", "64M", "--", "sh", "-c", "cp -a . $LIGHTPATH"]);
    let path = |name: &str| trees.home.path().join(name).to_str().unwrap().to_owned();
    let (frozen, packed, again) = (path("frozen"), path("packed"), path("again"));
    assert!(trees.fails(&["pack", region, &packed]).contains("has been used since it was frozen"));
    trees.says(&["freeze", region, &frozen]);
    trees.says(&["pack", &frozen, &packed]);
    assert!(fs::metadata(&packed).unwrap().len() < 1 << 20);
    trees.says(&["unpack", &packed, &again]);
    assert!(pages(Path::new(&again)) == pages(Path::new(&frozen)));
    let script = format!("cd $LIGHTPATH; {LIST}");
    assert_eq!(trees.says(&["run", "--from", &again, "--", "sh", "-c", &script]), sh(&trees.copy(), LIST));
    // A run on the file itself makes it an ordinary one.
    trees.says(&["run", "--region", &again, "--", "true"]);
    assert!(trees.fails(&["run", "--from", &again, "--", "true"]).contains("has been used since"));
}

#[test]
fn bad_input_is_one_line_and_leaves_nothing() {
    let trees = Trees::new("echo f > f");
    let path = |name: &str| trees.home.path().join(name).to_str().unwrap().to_owned();
    let line = |args: &[&str]| {
        let text = trees.fails(args);
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        text
    };
    let (region, frozen, packed, to) = (path("region"), path("frozen"), path("packed"), path("to"));
    assert!(line(&["freeze", "nobody", &frozen]).contains("no session nobody"));
    assert!(line(&["freeze", "1", &frozen]).contains('1'));
    assert!(line(&["run", "--from", "f", "--", "true"]).contains("not a frozen region"));
    assert!(line(&["run", "--from", "nothing", "--", "true"]).contains("No such file"));
    assert!(line(&["run", "--from", "f", "--region", &region, "--", "true"]).contains("--region"));
    assert!(line(&["unpack", "f", &to]).contains("not a packed region"));
    trees.says(&["run", "--region", &region, "--size", "64M", "--", "sh", "-c", "seq 1 9999 > $LIGHTPATH/f"]);
    trees.says(&["freeze", &region, &frozen]);
    assert!(line(&["freeze", &region, &frozen]).contains("exists"));
    trees.says(&["pack", &frozen, &packed]);
    for args in [
        &["info", &packed][..],
        &["run", "--from", &packed, "--", "true"],
        &["run", "--over", &packed, "--", "true"],
    ] {
        assert!(line(args).contains("is packed: see lightpath unpack"));
    }
    let whole = fs::read(&packed).unwrap();
    for cut in [10, whole.len() / 2, whole.len() - 1] {
        fs::write(&packed, &whole[..cut]).unwrap();
        line(&["unpack", &packed, &to]);
    }
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&packed, &damaged).unwrap();
    assert!(line(&["unpack", &packed, &to]).contains("damaged"));
    let left: Vec<_> =
        fs::read_dir(trees.home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name != "to" && !name.to_str().unwrap().ends_with(".part")), "{left:?}");
}

#[test]
fn a_freezer_that_is_killed_holds_nobody_for_long() {
    let trees = Trees::new("echo f > f");
    let script = "cd $LIGHTPATH; seq 1 300000 > large; echo; read line; i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo $i > x; done; cat x";
    let file = trees.home.path().join("frozen");
    let to = file.to_str().unwrap();
    let (mut calls, step) = trees::kills(100, 127);
    let (mut ended, mut kills) = (false, 0);
    while !ended {
        let mut command = trees.lightpath(&["run", "--size", "64M", "--", "sh", "-c", script]);
        let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        run.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let id = run.id().to_string();
        ended = trees::killed_at(&mut trees.lightpath(&["freeze", &id, to]), calls);
        // It has made a whole file or none, and is not in the way of the next.
        if !file.exists() {
            trees.says(&["freeze", &id, to]);
        }
        drop(run.stdin.take());
        assert_eq!(said(&run.wait_with_output().unwrap()), "50\n", "killed at call {calls}");
        let large =
            trees.says(&["run", "--from", to, "--", "sh", "-c", "tail -n 1 $LIGHTPATH/large; ls $LIGHTPATH"]);
        assert_eq!(large, "300000\nlarge\n", "killed at call {calls}");
        fs::remove_file(&file).unwrap();
        calls += step;
        kills += 1;
    }
    assert!(kills > 3, "{kills} kills");
}
