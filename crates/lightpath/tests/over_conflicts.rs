//! What session and directory have both changed, and taking back a part of what a session has changed.

mod trees;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use trees::{LIST, MAKE, Trees, is_root, killed_at, sh, state};

/// What is done over the tree.
const CHANGE: &str = "echo more >> a/one; rm -r d/e; mv a/b b; mkdir -p n/m/o; echo n > n/m/n; echo o > n/m/o/o; \
    sed -i 1d numbers; rm dangling; mkdir dangling; echo in > dangling/in; chmod 640 run.sh; rm -r keep; echo k > keep";

#[test]
fn a_part_is_discarded_and_the_session_keeps_the_rest() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    let before = state(&trees.tree());
    let text = trees.says(&["discard", "n/m/o", "numbers", "keep", "d/e", "run.sh", "dangling"]);
    assert!(text.contains("discarded; session") && text.contains("keeps "), "{text}");
    sh(&trees.copy(), "echo more >> a/one; mv a/b b; mkdir -p n/m; echo n > n/m/n");
    assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST));
    let left = trees.says(&["diff"]);
    assert!(left.contains("M\ta/one\n") && left.contains("A\tn/m/n\n"), "{left}");
    for path in ["numbers", "keep", "d/e", "run.sh", "dangling", "n/m/o"] {
        assert!(!left.contains(&format!("\t{path}")), "{path} is in {left}");
    }
    // What was taken in again is the session's to change.
    trees.over("echo again >> numbers; rm keep/file");
    sh(&trees.copy(), "echo again >> numbers; rm keep/file");
    assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST));
    assert_eq!(state(&trees.tree()), before);
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

#[test]
fn all_that_has_changed_can_be_discarded_by_path() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    assert!(trees.says(&["discard", "."]).ends_with("keeps 0\n"));
    assert_eq!(trees.says(&["diff"]), "");
    assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST));
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

#[test]
fn both_names_of_a_rename_are_discarded_apart() {
    let trees = Trees::new("mkdir d; echo one > d/one; setfattr -n user.k -v v d/one; echo two > two");
    trees.over("mv d/one one; mv two d/two");
    trees.says(&["discard", "d/one", "d/two"]);
    let look = "find . -type f | sort; cat one d/one; getfattr --only-values -n user.k one d/one";
    assert_eq!(trees.over(look), "./d/one\n./one\none\none\nvv");
    assert_eq!(trees.says(&["diff"]), "A\tone\nD\ttwo\n");
}

#[test]
fn what_cannot_be_discarded_is_one_line() {
    let trees = Trees::new("mkdir -p d/e; echo f > d/e/f; echo g > d/g");
    trees.over("rm -r d");
    let text = trees.fails(&["discard", "d/e"]);
    assert_eq!(text, "lightpath: d/e: the session has removed d: discard that\n");
    let text = trees.fails(&["discard", "other"]);
    assert_eq!(text, "lightpath: other: the session has changed nothing there\n");
    assert!(trees.fails(&["discard", "--force", "d"]).contains("cannot be used with"));
    trees.says(&["discard", "d"]);
    assert_eq!(trees.over("cat d/e/f"), "f\n");
}

#[test]
fn a_discard_of_a_part_that_is_killed_is_finished() {
    let (mut calls, step) = trees::kills(100, 41);
    let (mut ended, mut kills) = (false, 0);
    while !ended {
        let trees = Trees::new(MAKE);
        trees.over(CHANGE);
        ended = killed_at(&mut trees.lightpath(&["discard", "."]), calls);
        // What it was at is made whole by a run, and what it had not come to is for the next.
        trees.over("true");
        let output = trees.lightpath(&["discard", "."]).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || complaint.contains("has changed nothing there"), "{complaint}");
        assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST), "killed at call {calls}");
        assert_eq!(trees.says(&["diff"]), "", "killed at call {calls}");
        calls += step;
        kills += 1;
    }
    assert!(kills > 2, "{kills} kills");
}

/// Files and names that both have changed.
fn in_conflict() -> Trees {
    let trees = Trees::new("mkdir d; for n in 1 2 3 4 5; do echo $n > f$n; done; echo in > d/in");
    trees.over("for n in 1 2; do echo session > f$n; done; rm f3; echo new > new; echo s > d/in; chmod 600 f5; echo s > f4");
    sh(&trees.tree(), "echo other > f1; rm f2; echo other > f3; echo other > new; echo more >> f5");
    trees
}

#[test]
fn conflicts_are_settled_for_the_hosts_side() {
    let trees = in_conflict();
    let text = trees.fails(&["apply"]);
    assert!(text.contains("5 conflicts: nothing was written"), "{text}");
    assert!(
        text.contains("lightpath discard PATH") && text.contains("lightpath apply --force PATH"),
        "{text}"
    );
    let run = trees.lightpath(&["run", "--over", ".", "--", "true"]).output().unwrap();
    assert!(String::from_utf8_lossy(&run.stderr).contains("lightpath discard PATH"));
    trees.says(&["discard", "f1", "f2", "f3", "new", "f5"]);
    assert_eq!(
        trees.over("cat f1 f3 f4 f5 d/in new; ls"),
        "other\nother\ns\n5\nmore\ns\nother\nd\nf1\nf3\nf4\nf5\nnew\n"
    );
    assert_eq!(trees.says(&["diff"]), "M\td/in\nM\tf4\n");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "cat f1 f3 f4 d/in"), "other\nother\ns\ns\n");
}

#[test]
fn conflicts_are_settled_for_the_sessions_side() {
    let trees = in_conflict();
    trees.says(&["apply", "--force", "f1"]);
    assert_eq!(fs::read_to_string(trees.tree().join("f1")).unwrap(), "session\n");
    let undo = trees.home.path().join("undo.tar");
    let undo = undo.to_str().unwrap();
    let before = sh(&trees.tree(), "ls; cat f1 f3 new d/in");
    // The session has not read what f5 was.
    let text = trees.fails(&["apply", "--force"]);
    assert!(text.contains("conflict: f5 ") && text.contains("1 conflict:"), "{text}");
    trees.says(&["discard", "f5"]);
    trees.says(&["apply", "--force", "--reverse", undo]);
    assert_eq!(
        sh(&trees.tree(), "cat f1 f2 f4 new d/in; ls"),
        "session\nsession\ns\nnew\ns\nd\nf1\nf2\nf4\nf5\nnew\n"
    );
    trees.says(&["undo", undo]);
    assert_eq!(sh(&trees.tree(), "ls; cat f1 f3 new d/in"), before);
}

#[test]
fn another_type_is_not_overwritten() {
    let trees = Trees::new("echo f > f; echo g > g; mkdir e; echo in > e/in");
    trees.over("echo s > f; mkdir new; echo x > new/x; rm -r e; echo g >> g");
    sh(&trees.tree(), "rm f; mkdir f; echo precious > f/p; echo file > new; echo seen > e/unseen; rm g");
    let before = state(&trees.tree());
    let text = trees.fails(&["apply", "--force"]);
    for path in ["f is of another type", "new is of another type", "e/unseen is in a directory"] {
        assert!(text.contains(path), "{path} is not in {text}");
    }
    assert_eq!(state(&trees.tree()), before);
}

#[test]
fn a_mode_that_both_have_changed_is_named_as_a_run_begins() {
    let trees = Trees::new("mkdir d; chmod 755 d");
    trees.over("chmod 700 d");
    sh(&trees.tree(), "chmod 750 d");
    let run = trees.lightpath(&["run", "--over", ".", "--", "stat", "-c", "%a", "d"]).output().unwrap();
    assert!(String::from_utf8_lossy(&run.stderr).contains("conflict: d has changed"), "{run:?}");
    assert_eq!(run.stdout, b"700\n");
    trees.says(&["discard", "d"]);
    assert_eq!(trees.over("stat -c %a d"), "750\n");
    assert_eq!(trees.says(&["diff"]), "");
}

#[test]
fn writing_to_a_fifo_is_no_conflict() {
    let trees = Trees::new("mkfifo p q; chmod 644 p q");
    let mut host = Command::new("sh").args(["-c", "cat p q"]).current_dir(trees.tree()).spawn().unwrap();
    trees.over("chmod 600 p; mv q r; echo one > p; echo two > r");
    assert!(host.wait().unwrap().success());
    let run = trees.lightpath(&["run", "--over", ".", "--", "true"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stderr), "");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "stat -c '%n %a %F' *"), "p 600 fifo\nr 644 fifo\n");
}

/// The command for other users, whose sessions are to be beside the tree.
fn users_lightpath(trees: &Trees) -> PathBuf {
    fs::set_permissions(trees.home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    trees.reachable()
}

#[test]
fn what_one_may_not_read_does_not_end_a_diff() {
    if !is_root() {
        return;
    }
    let trees = Trees::new(
        "mkdir d; chmod 777 d; echo secret > d/secret; chmod 600 d/secret; echo f > d/f; chmod 666 d/f",
    );
    sh(&trees.tree(), "chmod 755 .");
    let lightpath = users_lightpath(&trees);
    let user = |args: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&lightpath);
        command.args(args.split(' ')).current_dir(trees.tree());
        command
            .env("XDG_STATE_HOME", trees.home.path().join("users"))
            .env("XDG_CACHE_HOME", trees.home.path().join("cache"));
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(user("run --over . -- sh -c rm${IFS}-f${IFS}d/secret;echo${IFS}g>>d/f").0, 0);
    for (form, shown) in [("--patch", "+g\n"), ("--stat", "d/f | 1 +\n")] {
        let (status, text, complaint) = user(&format!("diff {form}"));
        assert_eq!(status, 1, "{form}: {text}{complaint}");
        assert!(text.contains(shown), "{form}: {text}");
        assert_eq!(complaint, "lightpath: d/secret: Permission denied\n");
    }
    assert_eq!(user("diff --name-status"), (0, "M\td/f\nD\td/secret\n".to_owned(), String::new()));
}

#[test]
fn files_that_are_too_large_do_not_end_a_diff() {
    let trees = Trees::new("truncate -s 1T s; echo f > f");
    trees.over("mv s t; truncate -s 2T u; echo more >> f");
    let stat = trees.says(&["diff", "--stat"]);
    assert!(
        stat.contains("s => t | 0\n") && stat.contains("u      | Bin 0 -> 2199023255552 bytes\n"),
        "{stat}"
    );
    let output = trees.lightpath(&["diff", "--patch"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("+more\n"));
    let expected = "lightpath: t: too large for a patch\nlightpath: u: too large for a patch\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
}

#[test]
fn a_path_that_is_nowhere_is_said() {
    let trees = Trees::new("echo f > f; echo g > g");
    trees.over("echo more >> f; rm g; echo n > n");
    for args in [&["diff", "typo"][..], &["diff", "--patch", "f", "typo"], &["diff", "f/typo"]] {
        let text = trees.fails(args);
        assert!(text.ends_with("typo: no such file in the session or its directory\n"), "{text}");
    }
    for path in ["f", "g", "n", "."] {
        assert_ne!(trees.says(&["diff", path]), "", "{path}");
    }
}

#[test]
fn names_that_are_no_text_have_bytes_in_json() {
    let trees = Trees::new("echo f > f");
    trees.over("echo x > $(printf 'a\\377'); echo more >> f");
    let list: serde_json::Value = serde_json::from_str(&trees.says(&["diff", "--json"])).unwrap();
    assert_eq!(list[0]["path_bytes"], serde_json::json!([97, 255]));
    assert_eq!(list[1]["path"], "f");
    assert!(list[1].get("path_bytes").is_none());
}

/// A user may rename what is another's in a directory of the user's own.
#[test]
fn another_users_file_is_renamed() {
    if !is_root() {
        return;
    }
    let trees = Trees::new(
        "mkdir d; echo theirs > d/f; chmod 644 d/f; echo ours > d/g; chmod 666 d/g; chown 65534 d",
    );
    let lightpath = users_lightpath(&trees);
    let script = format!(
        "export XDG_STATE_HOME=$PWD/../users XDG_CACHE_HOME=$PWD/../cache; \
         setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'lp={lp}; \
         $lp run --over . -- sh -c \"mv d/f d/h; mv d/g d/i; echo more >> d/i\" && $lp apply'",
        lp = lightpath.display()
    );
    let before = sh(&trees.tree(), "stat -c %i d/f");
    assert_eq!(sh(&trees.tree(), &script), format!("2 changes are in {}\n", trees.tree().display()));
    assert_eq!(
        sh(&trees.tree(), "stat -c '%n %u %a' d/*; cat d/*"),
        "d/h 0 644\nd/i 0 666\ntheirs\nours\nmore\n"
    );
    assert_eq!(sh(&trees.tree(), "stat -c %i d/h"), before);
}

/// What was done is said as far as possible.
#[test]
fn what_is_done_counts_if_it_cannot_be_said() {
    for command in ["apply", "discard", "discard f", "export --tar ../x.tar"] {
        let trees = Trees::new("echo f > f");
        trees.over("echo more >> f");
        let script = format!("{} {command} > /dev/full", env!("CARGO_BIN_EXE_lightpath"));
        let state = trees.home.path().join("state");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(trees.tree()).env("XDG_STATE_HOME", state);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"), "{command}");
    }
}

#[test]
fn a_name_that_the_host_has_lost_is_one_conflict() {
    let trees = Trees::new("echo one > f; ln -s f l; mkdir d; echo g > g; setfattr -n user.k -v v g");
    trees.over("printf 'two\\n' > f; rm l; ln -s g l; setfattr -n user.k -v w g; touch d/new");
    sh(&trees.tree(), "rm f g l; echo l > l");
    assert_eq!(trees.says(&["diff"]), "A\td/new\nM\tf\nM\tg\nM\tl\n");
    let text = trees.fails(&["apply"]);
    for line in ["conflict: f has been removed on the host", "conflict: l has changed on the host"] {
        assert!(text.contains(line), "{text}");
    }
    trees.says(&["discard", "f", "g", "l"]);
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "cat l; ls"), "l\nd\nl\n");
}

/// What a listing does not show is kept as well.
#[test]
fn directories_and_times_are_kept_by_a_discard_of_a_part() {
    let change = "mkdir -p new/sub; rmdir old; touch -d 2001-02-03 g";
    for verb in ["discard", "apply"] {
        let trees = Trees::new("mkdir old; echo f > f; echo g > g");
        trees.over(&format!("echo more >> f; {change}"));
        let text = trees.says(&[verb, "f"]);
        assert!(!text.contains("keeps 0"), "{text}");
        assert!(trees.tree().join("old").exists() && !trees.tree().join("new").exists());
        let look = "ls -d new/sub old 2> /dev/null; stat -c %y g; cat f";
        let f = if verb == "apply" { "f\nmore\n" } else { "f\n" };
        assert_eq!(trees.over(look), format!("new/sub\n2001-02-03 00:00:00.000000000 +0000\n{f}"));
        trees.says(&["apply"]);
        assert!(!trees.tree().join("old").exists() && trees.tree().join("new/sub").exists());
    }
}

#[test]
fn what_becomes_of_a_renamed_file_is_said() {
    let trees = Trees::new("seq 100 > a; seq 100 > c; seq 100 > e");
    trees.over("mv a b; chmod +x b; mv c d; echo 101 >> d; mv e f");
    let patch = trees.says(&["diff", "--patch"]);
    assert!(patch.contains("old mode 100644\nnew mode 100755\nrename from a\nrename to b\n"), "{patch}");
    fs::write(trees.home.path().join("patch"), &patch).unwrap();
    sh(&trees.copy(), "git apply ../patch");
    let json = trees.says(&["diff", "--json"]);
    let changed = |name: &str| {
        let change =
            json.split('{').find(|part| part.contains(&format!("\"path\":\"{name}\""))).unwrap().to_owned();
        change.split("\"changed\":").nth(1).unwrap().split(']').next().unwrap().to_owned() + "]"
    };
    assert_eq!(["b", "d", "f"].map(changed), ["[\"mode\"]", "[\"content\"]", "[]"]);
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}
