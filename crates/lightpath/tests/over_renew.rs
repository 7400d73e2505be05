//! A later run of a session sees what has changed in the directory, and names what has changed on both sides.

mod trees;

use std::fs;

use trees::{LIST, MAKE, Trees, is_root, killed_at, said, sh};

/// What the session changes.
const MINE: &str = "echo mine >> a/one; rm run.sh; mkdir own; echo o > own/o; mv d/e/soft d/e/moved";
/// What the host changes, of what the session has seen; nothing in common with the above.
const THEIRS: &str = "echo theirs >> numbers; echo new > d/new; rm a/b/two; mkdir -p n/m; echo n > n/m/n; rm -r keep/deep; \
    chmod 750 empty; ln -sfn b/c alias; rm pipe; mkdir pipe; echo in > pipe/in; sed -i 1d d/large; chmod 600 a/b/c/three; \
    ln Makefile d/make; touch -d 2011-01-01 keep/file";

#[test]
fn what_only_the_host_has_changed_is_seen() {
    let listed = "find . > /dev/null; ls -R > /dev/null";
    let looks =
        ["find . -ls > /dev/null; cat a/one numbers d/large > /dev/null", "ls . a d", "stat . a/one", listed];
    for look in looks {
        let trees = Trees::new(MAKE);
        trees.over(look);
        trees.over(MINE);
        sh(&trees.tree(), THEIRS);
        let run = trees.lightpath(&["run", "--over", ".", "--", "sh", "-c", LIST]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&run.stderr), "");
        sh(&trees.copy(), MINE);
        sh(&trees.copy(), THEIRS);
        assert_eq!(said(&run), sh(&trees.copy(), LIST));
        let diff = trees.says(&["diff"]);
        assert_eq!(diff, "M\ta/one\nR\td/e/soft\td/e/moved\nM\td/hard\nA\town/o\nD\trun.sh\n");
        trees.says(&["apply"]);
        assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
    }
}

#[test]
fn what_both_have_changed_is_named_and_stays() {
    let trees = Trees::new(MAKE);
    trees.over("echo mine >> numbers; echo mine > fresh; rm a/b/two; rm -r keep; echo mine > d/e/mine; cat a/one; find . -ls > /dev/null");
    sh(
        &trees.tree(),
        "echo theirs >> numbers; echo theirs > fresh; echo theirs >> a/b/two; echo theirs > keep/theirs; rm -r d/e; echo theirs >> a/one",
    );
    let run =
        trees.lightpath(&["run", "--over", ".", "--", "cat", "numbers", "fresh", "a/one"]).output().unwrap();
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    for path in ["numbers", "fresh", "a/b/two", "d/e"] {
        assert!(text.contains(&format!("conflict: {path} ")), "{path} is not in {text}");
    }
    assert!(!text.contains("a/one") && text.lines().count() == 5, "{text}");
    assert!(text.lines().last().unwrap().contains("lightpath discard PATH takes the host's"), "{text}");
    let text = said(&run);
    assert!(text.ends_with("999\n1000\nmine\nmine\none\ntheirs\n"), "{text}");
    let before = sh(&trees.tree(), LIST);
    let text = trees.fails(&["apply"]);
    for path in ["numbers", "fresh", "a/b/two", "keep/theirs"] {
        assert!(text.contains(&format!("conflict: {path} ")), "{path} is not in {text}");
    }
    assert_eq!(sh(&trees.tree(), LIST), before);
}

#[test]
fn links_of_a_file_that_has_changed_stay_one_file() {
    let trees = Trees::new("mkdir d; echo f > f; ln f g; ln f d/h; echo x > x");
    trees.over("find . -ls > /dev/null; cat f");
    sh(&trees.tree(), "echo more >> g; ln x d/y; rm f; ln g d/i");
    let list = "stat -c '%n %h' g d/h d/i x d/y; [ $(stat -c %i g) = $(stat -c %i d/h) ] && [ $(stat -c %i g) = $(stat -c %i d/i) ] && \
        [ $(stat -c %i x) = $(stat -c %i d/y) ] && cat d/h d/y; ls";
    assert_eq!(trees.over(list), sh(&trees.tree(), list));
    assert_eq!(trees.says(&["diff"]), "");
    assert!(trees.over("echo more >> d/i; cat g").ends_with("more\nmore\n"));
    trees.says(&["apply"]);
    assert_eq!(fs::read_to_string(trees.tree().join("d/h")).unwrap(), "f\nmore\nmore\n");
}

#[test]
fn a_renewal_that_is_killed_is_made_by_the_next_run() {
    let (mut calls, step) = trees::kills(200, 61);
    let (mut ended, mut kills) = (false, 0);
    while !ended {
        let trees = Trees::new(MAKE);
        trees.over("find . -ls > /dev/null; cat numbers > /dev/null");
        trees.over(MINE);
        sh(&trees.tree(), THEIRS);
        ended = killed_at(&mut trees.lightpath(&["run", "--over", ".", "--", "true"]), calls);
        sh(&trees.copy(), MINE);
        sh(&trees.copy(), THEIRS);
        assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST), "killed at call {calls}");
        trees.says(&["apply"]);
        assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST), "killed at call {calls}");
        calls += step;
        kills += 1;
    }
    assert!(kills > 3, "{kills} kills");
}

#[test]
fn another_directory_in_its_place_is_one_line() {
    let trees = Trees::new("echo old > f");
    trees.over("cat f");
    sh(trees.home.path(), "mv tree away; mkdir tree; echo new > tree/f");
    let text = trees.fails(&["run", "--over", ".", "--", "cat", "f"]);
    assert!(text.contains("is another directory than it was") && text.lines().count() == 1, "{text}");
    trees.says(&["discard"]);
    assert_eq!(trees.over("cat f"), "new\n");
}

#[test]
fn a_directory_that_may_not_be_read_any_more_stays_as_it_was_seen() {
    if !is_root() {
        return;
    }
    let trees = Trees::new("mkdir d; echo x > d/x; echo y > y; chmod 755 .. .; chown -R 12345:12345 .");
    let state = trees.home.path().join("other");
    fs::create_dir(&state).unwrap();
    sh(trees.home.path(), "chown 12345:12345 other");
    let over = |script: &str| {
        said(
            &trees
                .lightpath_as(12345, &state, &["run", "--over", ".", "--", "sh", "-c", script])
                .output()
                .unwrap(),
        )
    };
    over("ls -l d; cat d/x; echo mine > mine");
    sh(&trees.tree(), "chmod 000 d; echo more >> y");
    assert_eq!(over("cat y mine; stat -c %a d"), "y\nmore\nmine\n0\n");
    sh(&trees.tree(), "chmod 755 d; echo new > d/new");
    assert_eq!(over("cat d/x d/new"), "x\nnew\n");
}
