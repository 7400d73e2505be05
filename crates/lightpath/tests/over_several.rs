//! `run --over DIR --over DIR`: one session over several directories.

mod trees;

use std::fs;
use std::process::{Command, Stdio};

use trees::{LIST, MAKE, Trees, kill, killed_at, said, sh, state, stopped_at};

/// What the session is over, seen from the first of them; a name of `../a/one` is in the second.
const OVER: [&str; 6] = ["--over", ".", "--over", "../d", "--over", "../keep"];

/// What is done in the first directory and from there in the others.
const CHANGE: &str = "echo more >> one; cat ../d/hard; rm -r ../d/e; mv b q; mkdir -p ../keep/n/m; echo n > ../keep/n/m/n; \
    sed -i 1d ../d/large; mv q/two ../d/two; ln -s ../d/two link; chmod 700 ../keep/deep; rm ../keep/file; chmod 750 .";

/// A run over all of them.
fn run(trees: &Trees, options: &[&str], script: &str) -> Command {
    let args = [&["run"], options, &["--", "sh", "-c", script]].concat();
    let mut command = trees.lightpath(&args);
    command.current_dir(trees.tree().join("a"));
    command
}

fn over(trees: &Trees, script: &str) -> String {
    said(&run(trees, &OVER, script).output().unwrap())
}

/// Another command, started in the first directory.
fn command(trees: &Trees, args: &[&str]) -> Command {
    let mut command = trees.lightpath(args);
    command.current_dir(trees.tree().join("a"));
    command
}

fn says(trees: &Trees, args: &[&str]) -> String {
    said(&command(trees, args).output().unwrap())
}

fn fails(trees: &Trees, args: &[&str]) -> String {
    let output = command(trees, args).output().unwrap();
    assert!(!output.status.success(), "{args:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The name of the session.
fn name(trees: &Trees) -> String {
    let tree = trees.session();
    format!("{tree}+a,{tree}+d,{tree}+keep")
}

#[test]
fn what_is_done_in_each_is_seen_and_applied() {
    let trees = Trees::new(MAKE);
    let before = state(&trees.tree());
    assert_eq!(over(&trees, CHANGE), sh(&trees.copy().join("a"), CHANGE));
    let list = format!("cd ..; {LIST}");
    assert_eq!(over(&trees, &list), sh(&trees.copy(), LIST));
    assert_eq!(state(&trees.tree()), before, "the tree was written to");
    let diff = says(&trees, &["diff"]);
    assert_eq!(
        diff,
        "M\ta/\nD\ta/b/two\nA\ta/link\nM\ta/one\nR\ta/b/c/three\ta/q/c/three\nD\td/e/larger\nD\td/e/soft\nM\td/hard\nM\td/large\nA\td/two\nM\tkeep/deep/\nD\tkeep/file\nA\tkeep/n/m/n\n"
    );
    assert_eq!(
        says(&trees, &["diff", "../keep", "../d/two"]),
        "A\td/two\nM\tkeep/deep/\nD\tkeep/file\nA\tkeep/n/m/n\n"
    );
    assert!(fails(&trees, &["diff", "../empty"]).contains("not below"));
    assert!(says(&trees, &["sessions"]).starts_with(&format!("{}\tover ", name(&trees))));
    says(&trees, &["apply", "--check"]);
    assert_eq!(state(&trees.tree()), before, "diff or --check has written");
    says(&trees, &["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
    assert_eq!(says(&trees, &["sessions"]), "");
}

#[test]
fn a_part_is_applied_and_undone() {
    let trees = Trees::new(MAKE);
    let before = sh(&trees.tree(), LIST);
    over(&trees, CHANGE);
    let view = over(&trees, &format!("cd ..; {LIST}"));
    let text = says(&trees, &["apply", "--reverse", "../undo", "../d/large", "../keep/n", "one"]);
    assert!(text.contains("4 changes are in") && text.contains("keeps"), "{text}");
    assert_eq!(fs::read_to_string(trees.tree().join("keep/n/m/n")).unwrap(), "n\n");
    assert!(trees.tree().join("d/e").exists() && trees.tree().join("keep/file").exists());
    assert_eq!(sh(&trees.tree(), "cat d/hard"), "one\nmore\n");
    fs::rename(trees.tree().join("undo"), trees.home.path().join("undo")).unwrap();
    assert_eq!(over(&trees, &format!("cd ..; {LIST}")), view);
    let left = says(&trees, &["diff"]);
    assert!(
        !left.contains("large\n") && !left.contains("n/m/n") && left.contains("D\tkeep/file\n"),
        "{left}"
    );
    says(&trees, &["undo", trees.home.path().join("undo").to_str().unwrap()]);
    assert_eq!(sh(&trees.tree(), LIST), before);
}

#[test]
fn what_only_the_host_has_changed_is_seen_in_each() {
    let trees = Trees::new(MAKE);
    over(&trees, "find .. > /dev/null; cat one ../d/large ../keep/file > /dev/null");
    over(&trees, "echo mine >> one; rm ../keep/nothing");
    let theirs = "echo theirs >> d/large; rm keep/file; mkdir a/new; echo n > a/new/n; chmod 750 keep/deep";
    sh(&trees.tree(), theirs);
    sh(&trees.copy(), &format!("{theirs}; echo mine >> a/one; rm keep/nothing"));
    let output = run(&trees, &OVER, &format!("cd ..; {LIST}")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(said(&output), sh(&trees.copy(), LIST));
    says(&trees, &["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

#[test]
fn conflicts_of_each_are_named_and_nothing_is_written() {
    let trees = Trees::new(MAKE);
    over(
        &trees,
        "echo mine >> b/two; echo mine >> ../d/large; echo mine > ../keep/fresh; rm ../keep/nothing",
    );
    sh(&trees.tree(), "echo theirs >> a/b/two; echo theirs >> d/large; echo theirs > keep/fresh");
    let before = state(&trees.tree());
    let output = run(&trees, &OVER, "true").output().unwrap();
    for text in [String::from_utf8_lossy(&output.stderr).into_owned(), fails(&trees, &["apply"])] {
        for path in ["a/b/two", "d/large", "keep/fresh"] {
            assert!(text.contains(&format!("conflict: {path} ")), "{path} is not in {text}");
        }
        assert!(!text.contains("nothing has"), "{text}");
    }
    assert_eq!(state(&trees.tree()), before);
    // One of the directories is another.
    fs::rename(trees.tree().join("keep"), trees.tree().join("kept")).unwrap();
    fs::create_dir(trees.tree().join("keep")).unwrap();
    let output = run(&trees, &OVER, "true").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("keep is another directory than it was"), "{text}");
}

#[test]
fn a_directory_inside_another_is_a_part_of_it() {
    let trees = Trees::new(MAKE);
    for options in [["--over", "..", "--over", "."], ["--over", ".", "--over", ".."]] {
        let at = said(
            &run(&trees, &options, "echo x >> one; echo x >> ../numbers; echo $LIGHTPATH").output().unwrap(),
        );
        assert_eq!(at.trim(), trees.tree().to_str().unwrap());
    }
    assert_eq!(trees.says(&["diff"]), "M\ta/one\nM\tnumbers\n");
    assert!(trees.says(&["sessions"]).starts_with(&format!("{}\tover ", trees.session())));
}

#[test]
fn names_of_one_file_in_two_directories_are_one_file() {
    let trees = Trees::new(MAKE);
    let look = "[ $(stat -c %i one) = $(stat -c %i ../d/hard) ] && stat -c %h one ../d/hard";
    assert_eq!(over(&trees, look), "2\n2\n");
    assert_eq!(over(&trees, "echo more >> ../d/hard; cat one"), "one\nmore\n");
    says(&trees, &["apply"]);
    assert_eq!(
        sh(&trees.tree().join("a"), &format!("{look}; cat one ../d/hard")),
        "2\n2\none\nmore\none\nmore\n"
    );
}

/// As mount points do; mv(1) copies then.
#[test]
fn renames_and_links_from_one_to_the_other_fail() {
    let trees = Trees::new(MAKE);
    let script = "import os\nfor call in os.rename, os.link:\n  try: call('b/two', '../d/two')\n  except OSError as e: print(e.errno)\n";
    let output = trees.lightpath(&[&["run"], &OVER[..], &["--", "python3", "-c", script]].concat());
    let mut output = output;
    let text = said(&output.current_dir(trees.tree().join("a")).output().unwrap());
    assert_eq!(text, format!("{0}\n{0}\n", libc::EXDEV));
}

#[test]
fn what_takes_a_session_takes_this_one() {
    let trees = Trees::new(MAKE);
    over(&trees, CHANGE);
    sh(&trees.copy().join("a"), CHANGE);
    let home = trees.home.path();
    let path = |name: &str| home.join(name).to_str().unwrap().to_owned();
    assert_eq!(says(&trees, &["cat", ":keep/n/m/n", ":a/one"]), "n\none\nmore\n");
    assert_eq!(says(&trees, &["ls", ":keep/n"]), "m\n");
    says(&trees, &["cp", ":d/two", &path("two")]);
    assert_eq!(fs::read(home.join("two")).unwrap(), fs::read(trees.copy().join("d/two")).unwrap());
    says(&trees, &["cp", &path("two"), ":keep/three"]);
    fs::copy(home.join("two"), trees.copy().join("keep/three")).unwrap();
    fs::set_permissions(
        trees.copy().join("keep/three"),
        fs::metadata(home.join("two")).unwrap().permissions(),
    )
    .unwrap();
    assert!(says(&trees, &["diff", "--stat"]).contains("keep/three"));
    says(&trees, &["export", "--tar", &path("whole.tar")]);
    let parts = "export LC_ALL=C; find a d keep -type f -exec md5sum {} + | sort; find a d keep -printf '%P %y %m %l\n' | sort";
    sh(home, "mkdir whole; tar -C whole -xf whole.tar");
    assert_eq!(sh(&home.join("whole"), parts), sh(&trees.copy(), parts));
    says(&trees, &["export", "--oci", &path("layer.tar")]);
    let listed = sh(home, "tar tf layer.tar");
    assert!(listed.contains("keep/.wh.file\n") && listed.contains("keep/n/m/n\n"), "{listed}");
    says(&trees, &["freeze", &name(&trees), &path("frozen")]);
    let (a, d, two, one) = (path("tree/a"), path("tree/d"), path("tree/d/two"), path("tree/a/one"));
    let from = ["run", "--from", &path("frozen"), "--at", &a, "--at", &d, "--", "cat", &two, &one];
    assert_eq!(says(&trees, &from), sh(&trees.copy().join("a"), "cat ../d/two one"));
    let region = home.join("state/lightpath").join(name(&trees)).join("region");
    let checked = says(&trees, &["fsck", region.to_str().unwrap()]);
    assert!(!checked.contains("structure") && !checked.contains("inconsistent"), "{checked}");
    let patch = command(&trees, &["diff", "--patch", "one"]).output().unwrap();
    assert!(String::from_utf8_lossy(&patch.stdout).contains("--- a/a/one\n"));
    let before = state(&trees.tree());
    says(&trees, &["discard"]);
    assert_eq!(says(&trees, &["sessions"]), "");
    said(&run(&trees, &[&OVER[..], &["--discard"]].concat(), CHANGE).output().unwrap());
    assert_eq!(says(&trees, &["sessions"]), "");
    assert_eq!(state(&trees.tree()), before);
    let applied = run(&trees, &[&OVER[..], &["--apply"]].concat(), CHANGE).output().unwrap();
    assert!(applied.status.success());
    fs::remove_file(trees.copy().join("keep/three")).unwrap();
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

#[test]
fn a_session_is_over_one_set_of_directories() {
    let trees =
        Trees::new("mkdir a d keep; i=0; while [ $i -lt 16 ]; do mkdir n$i; i=$((i+1)); done; echo f > f");
    let all: Vec<String> = (0..16).map(|number| format!("../n{number}")).collect();
    let many: Vec<&str> = all.iter().flat_map(|path| ["--over", path]).collect();
    let line = |text: String| {
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        text
    };
    let fails = |options: &[&str]| line(fails(&trees, &[&["run"], options, &["--", "true"]].concat()));
    assert!(fails(&many).contains("the maximum is 15"));
    assert!(fails(&["--over", ".", "--over", "../f"]).contains("is no directory"));
    assert!(fails(&["--over", ".", "--over", "../nowhere"]).contains("No such file"));
    assert!(fails(&["--over", ".", "--over", "/proc"]).contains("belongs to the kernel"));
    assert!(fails(&["--over", ".", "--over", "../d", "--at", "/elsewhere"]).contains("leave --at out"));
    says(&trees, &["run", "--over", ".", "--over", "../d", "--session", "s", "--", "true"]);
    assert!(fails(&["--over", ".", "--session", "s"]).contains("is over"));
    assert!(fails(&["--over", "../d", "--over", ".", "--session", "s"]).contains("is over"));
    says(&trees, &["run", "--over", "../d", "--over", "../keep", "--", "true"]);
    let mut ambiguous = trees.lightpath(&["diff"]);
    let output = ambiguous.current_dir(trees.tree().join("d")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("are both over"));
    assert_eq!(says(&trees, &["diff"]), "");
}

#[test]
fn an_apply_that_is_killed_is_finished_by_the_next() {
    let mut ended = false;
    let (mut calls, step) = trees::kills(150, 97);
    let mut kills = 0;
    while !ended {
        let trees = Trees::new(MAKE);
        over(&trees, CHANGE);
        sh(&trees.copy().join("a"), CHANGE);
        ended = killed_at(&mut command(&trees, &["apply"]), calls);
        // It may have ended the session.
        if trees.home.path().join("state/lightpath").join(name(&trees)).exists() {
            says(&trees, &["apply"]);
        }
        assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST), "killed at call {calls}");
        calls += step;
        kills += 1;
    }
    assert!(kills > 4, "{kills} kills");
}

/// A launcher that was killed between the first directory and the last leaves a session that the next goes
/// on with.
#[test]
fn a_launcher_that_is_killed_leaves_each_whole_or_absent() {
    let trees = Trees::new(MAKE);
    let expected = sh(&trees.copy(), LIST);
    let (mut calls, step) = trees::kills(100, 29);
    let mut kills = 0;
    loop {
        let mut look = run(&trees, &OVER, "true");
        let Some(pid) = stopped_at(look.stdin(Stdio::null()), calls) else { break };
        let is_launcher = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() == "lightpath";
        kill(pid);
        if !is_launcher {
            break;
        }
        assert_eq!(over(&trees, &format!("cd ..; {LIST}")), expected, "killed at call {calls}");
        assert_eq!(says(&trees, &["diff"]), "", "killed at call {calls}");
        says(&trees, &["discard"]);
        calls += step;
        kills += 1;
    }
    assert!(kills > 4, "{kills} kills");
}
