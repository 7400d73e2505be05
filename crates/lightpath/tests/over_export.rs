//! `lightpath export`, `cat`, `ls` and `cp` with the session of a tree, and with a run.

mod trees;

use std::fs;
use std::io::Read;
use std::process::Stdio;

use trees::{LIST, MAKE, Trees, sh, state};

const CHANGE: &str = "echo more >> a/one; rm -r d/e; mv a/b b; mkdir -p n/m; echo n > n/m/n; rm -r keep; echo k > keep; \
    rm dangling; mkdir dangling; echo in > dangling/in; ln b/two zwei; chmod 640 run.sh; rm numbers; \
    mkdir $(printf 'a%.0s' $(seq 120)); echo x > $(printf 'a%.0s' $(seq 120))/$(printf 'b%.0s' $(seq 200))";

/// Extracts an archive into a new directory, and lists that.
fn extracted(trees: &Trees, archive: &str) -> String {
    let to = trees.home.path().join("extracted");
    fs::create_dir(&to).unwrap();
    sh(&to, &format!("tar xpf {archive}"));
    sh(&to, LIST)
}

#[test]
fn the_whole_tree_is_exported() {
    let trees = Trees::new(MAKE);
    let before = state(&trees.tree());
    trees.over(CHANGE);
    let file = trees.home.path().join("tree.tar");
    trees.says(&["export", "--tar", file.to_str().unwrap()]);
    sh(&trees.copy(), CHANGE);
    assert_eq!(extracted(&trees, file.to_str().unwrap()), sh(&trees.copy(), LIST));
    assert_eq!(state(&trees.tree()), before);
}

#[test]
fn a_layer_on_the_old_tree_is_the_new_one() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    let file = trees.home.path().join("layer.tar");
    let file = file.to_str().unwrap();
    trees.says(&["export", "--oci", file]);
    let names = sh(&trees.tree(), &format!("tar tf {file}"));
    for name in [".wh.numbers", "d/.wh.e", "a/.wh.b", "n/m/n", "keep"] {
        assert!(names.lines().any(|line| line == name), "{name} is not in {names}");
    }
    assert!(!names.contains("d/large") && !names.contains(".wh.deep"), "{names}");
    // As who unpacks an image does: what is marked goes first, and what is in the way of another type.
    let unpack = format!(
        "tar tf {file} | grep '\\(^\\|/\\).wh.' | while read n; do rm -rf \"$(dirname $n)/$(basename $n | cut -c5-)\"; done; \
         rm -rf keep dangling; tar xpf {file} --exclude='.wh.*'"
    );
    let old = trees.home.path().join("old");
    sh(trees.home.path(), "cp -a copy old");
    sh(&old, &unpack);
    sh(&trees.copy(), CHANGE);
    assert_eq!(sh(&old, LIST), sh(&trees.copy(), LIST));
    trees.over("echo x > .wh.x");
    assert!(trees.fails(&["export", "--oci", file]).contains(".wh.x"));
    assert!(trees.fails(&["export"]).contains("--tar"));
}

#[test]
fn files_go_into_and_out_of_a_session() {
    let trees = Trees::new(MAKE);
    let before = state(&trees.tree());
    trees.over("echo more >> a/one; rm -r d");
    assert_eq!(trees.says(&["cat", ":a/one"]), "one\nmore\n");
    assert_eq!(trees.says(&["cat", &format!("{}:a/one", trees.session())]), "one\nmore\n");
    assert_eq!(trees.says(&["ls", ":a"]), trees.over("ls a"));
    assert!(trees.says(&["ls", "-l", ":"]).contains("numbers"));
    let out = trees.home.path().join("out");
    trees.says(&["cp", ":a", out.to_str().unwrap()]);
    assert_eq!(sh(&out, LIST), trees.over(&format!("cd a; {LIST}")));
    fs::write(out.join("in"), "in\n").unwrap();
    trees.says(&["cp", out.join("in").to_str().unwrap(), ":a/b/"]);
    assert_eq!(trees.says(&["diff"]).lines().filter(|line| *line == "A\ta/b/in").count(), 1);
    assert_eq!(state(&trees.tree()), before);
    let line = |args: &[&str]| {
        let text = trees.fails(args);
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        text
    };
    assert!(line(&["cp", ":a/one", "here"]).contains("hidden"));
    assert!(line(&["cp", ":a/one", "other:x"]).contains("two places"));
    assert!(line(&["cat", "a/one"]).contains("say where"));
    assert!(line(&["cat", "nobody:x"]).contains("no session nobody"));
}

#[test]
fn files_come_out_of_a_run_that_is_under_way() {
    let trees = Trees::new("echo f > f");
    let script = "mkdir $LIGHTPATH/d; echo in > $LIGHTPATH/d/f; echo; read line; cat $LIGHTPATH/got";
    let mut run = trees.lightpath(&["run", "--at", "/light", "--", "sh", "-c", script]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let out = run.stdout.as_mut().unwrap();
    out.read_exact(&mut [0]).unwrap();
    let place = |path: &str| format!("{}:{path}", run.id());
    assert_eq!(trees.says(&["cat", &place("d/f")]), "in\n");
    assert_eq!(trees.says(&["ls", &place("/light")]), "d\n");
    trees.says(&["cp", "f", &place("got")]);
    drop(run.stdin.take());
    let mut text = String::new();
    run.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(run.wait().unwrap().success());
    assert_eq!(text, "f\n");
}

#[test]
fn what_is_no_regular_file_is_written_to() {
    let trees = Trees::new("echo f > f");
    trees.over("echo n > n");
    let lightpath = env!("CARGO_BIN_EXE_lightpath");
    let script = format!(
        "export XDG_STATE_HOME={}\nlp() {{ {lightpath} export --tar \"$@\"; }}\n\
         echo mine > ../x.part; lp ../x; tar tf ../x; cat ../x.part\n\
         lp - | tar t; lp /dev/stdout | tar t; lp /dev/stdout > ../y; tar tf ../y\n\
         mkfifo ../p; tar tf ../p & lp ../p; wait; test -p ../p\n\
         ln -s z ../l; lp ../l; tar tf ../z; echo old > ../z; lp ../l; tar tf ../z; test -h ../l\n\
         mknod ../full c 1 7 2> /dev/null && {{ lp ../full 2>&1; test -c ../full; }} || lp /dev/full 2>&1; ls -A ..",
        trees.home.path().join("state").display()
    );
    let text = sh(&trees.tree(), &format!("{{ {script}; }} | grep -v ' in '"));
    let both = "f\nn\n";
    let (first, rest) = text.split_once("lightpath: ").unwrap();
    assert_eq!(first, format!("{both}mine\n{}", both.repeat(6)));
    assert!(rest.contains("full: No space left on device\n") && rest.matches(".part").count() == 1, "{rest}");
}
