//! Inode numbers over a tree: those of the host where no other inode can ever have them.

mod trees;

use std::collections::BTreeMap;
use std::io::Read;
use std::process::Command;
use std::thread;
use std::time::Duration;

use trees::{MAKE, Trees, said, sh};

/// Paths with their numbers, from stat(2).
const STATS: &str = "find . -exec stat -c '%i %n' {} + | LC_ALL=C sort -k 2";
/// Paths of one directory with their numbers, from getdents(2).
const ENTRIES: &str = "ls -U -a -i -1 | grep -v ' [.][.]$' | LC_ALL=C sort -k 2";

/// A tree that is older than any session over it.
fn aged(make: &str) -> Trees {
    let trees = Trees::new(make);
    thread::sleep(Duration::from_millis(50));
    trees
}

/// Numbers by path; whether each number is of one file, without links.
fn numbers(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .map(str::trim)
        .filter_map(|line| line.split_once(' '))
        .map(|(ino, name)| (name, ino))
        .collect()
}

fn are_unique(seen: &BTreeMap<&str, &str>) -> bool {
    let mut all: Vec<_> = seen.values().collect();
    all.sort_unstable();
    all.windows(2).all(|pair| pair[0] != pair[1])
}

#[test]
fn untouched_files_have_the_numbers_of_the_host() {
    let trees = aged(MAKE);
    for script in [STATS, ENTRIES, "cd a; stat -c %i . .. b; stat -L -c %i - < one"] {
        assert_eq!(trees.over(script), sh(&trees.tree(), script));
    }
}

#[test]
fn a_file_keeps_its_number_whatever_becomes_of_it() {
    let trees = aged(MAKE);
    let before = sh(&trees.tree(), "stat -c %i numbers a a/one d/e/soft");
    let script =
        "echo more >> numbers; mv numbers a/n; ln a/n a/m; mv a q; chmod 600 q/one; mv d/e/soft s; rm q/n;";
    let stat = "stat -c %i q/m q q/one s";
    assert_eq!(trees.over(&format!("{script} {stat}")), before);
    assert_eq!(trees.over(stat), before, "in the next run");
    trees.says(&["apply", "q"]);
    assert_eq!(trees.over(stat), before, "after a partial apply");
}

#[test]
fn no_two_files_have_one_number() {
    let trees = aged("mkdir a b c d; for i in $(seq 50); do echo $i > a/$i; echo $i > b/$i; done");
    // The host frees and reuses numbers between looks, and moves directories.
    let script = "rm -r a; for i in $(seq 60); do echo n > c/$i; done; mkdir a; for i in $(seq 50); do echo m > a/$i; done; mv b c/b";
    let path = trees.tree();
    trees.over("stat . a/* b/* > /dev/null; rm a/1; for i in $(seq 99); do echo o > own$i; done");
    sh(&path, script);
    let seen = trees.over(STATS);
    assert!(are_unique(&numbers(&seen)), "{seen}");
    // Within one run.
    let trees = aged("mkdir a b c; for i in $(seq 50); do echo $i > a/$i; echo $i > b/$i; done");
    let path = trees.tree();
    let mut child = trees
        .lightpath(&["run", "--over", ".", "--", "sh", "-c"])
        .arg(format!("stat a/* b/* > /dev/null; echo go > go; echo; read go; {STATS}"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    sh(&path, "rm -r a; for i in $(seq 60); do echo n > c/$i; done; mv b c/b");
    let output = child.wait_with_output().unwrap();
    let seen = said(&output);
    assert!(seen.contains("c/60") && seen.contains("a/1") && are_unique(&numbers(&seen)), "{seen}");
}

#[test]
fn git_finds_a_tree_as_its_index_says() {
    let git = "export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1;";
    let make = format!(
        "{git} mkdir -p s/t; for i in $(seq 100); do echo $i > s/$i; echo $i > s/t/$i; done; sleep 1.1; git init -q; \
         git add -A .; git -c user.name=n -c user.email=e commit -qm m"
    );
    let trees = aged(&make);
    // Files whose status differs from the index's, which is not written: git status would read these.
    let script = format!("{git} git diff-files --name-only");
    assert_eq!(sh(&trees.tree(), &script), "");
    assert_eq!(trees.over(&script), "");
    assert_eq!(trees.over(&format!("{git} echo more >> s/t/7; git status --short")), " M s/t/7\n");
}

/// In a mount namespace of its own: a directory at two places, and another file system.
#[test]
fn what_is_mounted_below_has_other_numbers() {
    let trees = aged("mkdir a b m; for i in $(seq 20); do echo $i > a/$i; done");
    let run = trees.lightpath(&["run", "--over", ".", "--", "sh", "-c", STATS]);
    let script = r#"mount --bind a b && mount -t tmpfs none m && touch m/1 m/2 && exec "$0" "$@""#;
    let output = Command::new("unshare")
        .args(["-m", "-r", "sh", "-c", script])
        .arg(run.get_program())
        .args(run.get_args())
        .current_dir(trees.tree())
        .env("XDG_STATE_HOME", trees.home.path().join("state"))
        .output()
        .unwrap();
    let seen = said(&output);
    let (over, host) = (numbers(&seen), sh(&trees.tree(), STATS));
    assert!(are_unique(&over) && over.contains_key("./b/20") && over.contains_key("./m/2"), "{seen}");
    for (name, number) in numbers(&host) {
        let same = !name.starts_with("./b") && !name.starts_with("./m");
        assert_eq!(over[name] == number, same, "{name}");
    }
}

#[test]
fn devices_are_the_regions() {
    let trees = Trees::new("mkdir d; echo x > f");
    let script = "stat -c %d . d f | uniq";
    let (over, host) = (trees.over(script), sh(&trees.tree(), script));
    assert_eq!(over.lines().count(), 1);
    assert_ne!(over, host);
}
