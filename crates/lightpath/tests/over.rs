//! `lightpath run --over` and what comes after it: the same scripts in a plain copy of a tree and over the
//! tree.

mod trees;

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use trees::{LIST, MAKE, Trees, is_root, kill, killed_at, sh, state, stopped_at};

/// Times of what no script touches.
const TIMES: &str = "export LC_ALL=C; find . -name 'keep*' -printf '%P %T@\n' | sort";

/// What is done in both.
const SCRIPTS: [(&str, &str); 12] = [
    (
        "reads",
        "cat a/one a/b/c/three numbers > /dev/null; find . > /dev/null; md5sum d/large d/e/larger; ./run.sh; cat alias/one d/e/soft",
    ),
    (
        "writes",
        "echo more >> a/one; cat d/hard; : > a/b/two; echo new > a/b/new; mkdir -p x/y/z; echo q > x/y/z/q; chmod 640 numbers",
    ),
    ("sed", "sed -i s/1/one/ numbers; sed -i s/one/1/ d/hard; sed -i '$d' d/large; cat alias/one"),
    (
        "moves",
        "mv a q; mv d/e q/b/e; mv q/b d/b; ls -R | grep -v '^total'; mv numbers keep/numbers; mv keep kept",
    ),
    ("removes", "rm -r a d/e; rm numbers d/hard; rmdir empty; rm pipe dangling; mkdir a; echo again > a/one"),
    (
        "links",
        "ln a/b/two a/b/zwei; ln numbers d/zahlen; ln -sfn d alias; echo 5 >> a/b/zwei; rm a/b/two; ln d/large x; mv x a/x",
    ),
    (
        "types",
        "rm a/one; mkdir a/one; echo in > a/one/in; rm -r d; echo file > d; rm alias; echo file > alias; rm dangling; ln -s other dangling",
    ),
    ("make", "make -s; cat out; touch -d 2020-01-01 numbers; make -s; touch out; make -s; rm Makefile"),
    ("tar", "tar cf t.tar a d; rm -r a d; tar xf t.tar; rm t.tar; tar cf - keep | tar tf - | sort"),
    (
        "git",
        "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1; git init -q; git -c user.name=n -c user.email=e add -A . ; git -c user.name=n -c user.email=e commit -qm m; echo z >> numbers; git status --short; git diff --stat; git checkout -q numbers; git status --short; rm -rf .git",
    ),
    ("swaps", "mv a/one t; mv a/b/c/three a/one; mv t a/b/c/three; mv a/b t; mv d a/b; mv t d"),
    (
        "sizes",
        "truncate -s 100 d/large; truncate -s 10000 a/one; dd if=/dev/zero of=d/e/larger bs=1 count=5 seek=1000 conv=notrunc 2>/dev/null; tail -c 5 d/e/larger; head -c 1003 d/e/larger | tail -c 4 | od -c; cp -a d/e e2; cp --reflink=never d/large l2",
    ),
];

#[test]
fn scripts_do_the_same_over_a_tree_as_in_a_copy() {
    for (name, script) in SCRIPTS {
        let trees = Trees::new(MAKE);
        let before = state(&trees.tree());
        // The directory's own name is in what some scripts print.
        fs::rename(trees.copy(), trees.home.path().join("t")).unwrap();
        fs::create_dir(trees.copy()).unwrap();
        fs::rename(trees.home.path().join("t"), trees.copy().join("tree")).unwrap();
        let copy = trees.copy().join("tree");
        let script = format!("{{ {script}; }} 2>&1");
        assert_eq!(trees.over(&script), sh(&copy, &script), "{name}: output");
        assert_eq!(trees.over(LIST), sh(&copy, LIST), "{name}: view");
        assert_eq!(state(&trees.tree()), before, "{name}: the tree was written to");
        trees.says(&["diff"]);
        trees.says(&["apply", "--check"]);
        assert_eq!(state(&trees.tree()), before, "{name}: diff or --check has written");
        trees.says(&["apply"]);
        assert_eq!(sh(&trees.tree(), LIST), sh(&copy, LIST), "{name}: after apply");
        assert_eq!(sh(&trees.tree(), TIMES), sh(&copy, TIMES), "{name}: times");
        assert_eq!(trees.says(&["sessions"]), "", "{name}: the session is still there");
    }
}

#[test]
fn scripts_after_one_another_are_one_session() {
    let trees = Trees::new(MAKE);
    let scripts: Vec<&str> = SCRIPTS
        .iter()
        .filter(|(name, _)| ["reads", "writes", "links", "sizes"].contains(name))
        .map(|(_, s)| *s)
        .collect();
    for script in &scripts {
        trees.over(script);
        sh(&trees.copy(), script);
    }
    assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST));
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

#[test]
fn a_discarded_session_leaves_no_trace() {
    let trees = Trees::new(MAKE);
    let before = state(&trees.tree());
    trees.over("rm -r a; echo x > numbers");
    assert!(trees.says(&["sessions"]).contains("tree"));
    trees.says(&["discard"]);
    trees.says(&["run", "--over", ".", "--discard", "--", "sh", "-c", "rm -r d"]);
    assert_eq!(trees.says(&["sessions"]), "");
    assert_eq!(state(&trees.tree()), before);
    assert_eq!(trees.over("cat numbers"), fs::read_to_string(trees.tree().join("numbers")).unwrap());
}

#[test]
fn diff_speaks_git() {
    let trees = Trees::new(MAKE);
    trees.over("mv a/one a/uno; echo x >> numbers; ln -sfn ../../a/uno d/e/soft; mkdir n; echo n > n/new; chmod +x Makefile; rm alias; echo f > alias");
    let text = trees.says(&["diff"]);
    assert_eq!(text, "M\tMakefile\nR\ta/one\ta/uno\nT\talias\nM\td/e/soft\nA\tn/new\nM\tnumbers\n");
    assert_eq!(trees.says(&["diff", "n"]), "A\tn/new\n");
    assert!(
        trees.says(&["diff", "--stat", "numbers"]).contains("1 file changed, 1 insertion(+), 0 deletions(-)")
    );
    assert!(trees.says(&["diff", "--json", "n"]).contains("\"status\":\"A\""));
    assert!(trees.fails(&["diff", "/etc"]).contains("not below"));
}

#[test]
fn git_takes_the_patch() {
    let trees = Trees::new(
        "seq 1 100 > n; printf 'no end' > e; head -c 9000 /dev/zero > bin; mkdir d; echo d > d/d; ln -s d/d l; : > void; printf q > \"$(printf 'q\\t\\377')\"; echo x > x; echo s > s",
    );
    let script = "sed -i 's/^5./x/' n; printf 'no end either' > e; printf 1 | dd of=bin seek=10 bs=1 conv=notrunc 2>/dev/null; \
        mv d/d r; rm void; : > hollow; printf qq > \"$(printf 'q\\t\\377')\"; chmod +x x; rm s; ln -s n s; head -c 70000 /dev/zero | tr '\\0' '\\1' > b2; printf '\\0' >> b2";
    trees.over(script);
    let patch = trees.lightpath(&["diff", "--patch"]).output().unwrap();
    assert!(patch.status.success());
    let at = trees.home.path().join("patch");
    fs::write(&at, &patch.stdout).unwrap();
    sh(&trees.copy(), &format!("git init -q && git apply {} && rm -rf .git", at.display()));
    trees.says(&["apply"]);
    // Empty directories are not in a patch.
    let list = "export LC_ALL=C; find . -not -type d -printf '%P %y %m %l\n' | sort; find . -type f -exec md5sum {} + | sort";
    assert_eq!(sh(&trees.tree(), list), sh(&trees.copy(), list));
}

/// Where opening would wait for ever, or read without end.
#[test]
fn what_is_no_file_is_not_read_for_a_patch() {
    let make = "mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; seq 4 > f; seq 5 > g";
    let trees = Trees::new(make);
    if is_root() {
        sh(&trees.tree(), "mknod zero c 1 5");
    }
    trees.over("for one in fifo sock zero; do test -e $one && mv $one $one.new; done; seq 5 > f; mv g h");
    let shown = |how: &str| trees.lightpath(&["diff", how]).output().unwrap();
    let stat = String::from_utf8(shown("--stat").stdout).unwrap();
    assert!(stat.contains(" fifo => fifo.new | 0") && stat.contains(" sock => sock.new | 0"), "{stat}");
    assert!(!String::from_utf8_lossy(&shown("--patch").stdout).contains("fifo"));
    // The host has put a FIFO in their place.
    sh(&trees.tree(), "rm f g; mkfifo f g");
    for how in ["--stat", "--patch"] {
        let output = shown(how);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("f: no regular file any more\n"), "{said}");
    }
}

#[test]
fn conflicts_are_named_and_nothing_is_written() {
    let trees = Trees::new(MAKE);
    trees.over("echo mine >> numbers; echo new > fresh; rm a/b/two; cat a/one; ls d");
    sh(
        &trees.tree(),
        "echo theirs >> numbers; echo theirs > fresh; echo theirs >> a/b/two; echo theirs >> d/large",
    );
    let before = state(&trees.tree());
    let text = trees.fails(&["apply"]);
    for path in ["numbers", "fresh", "a/b/two"] {
        assert!(text.contains(&format!("conflict: {path} ")), "{path} is not in {text}");
    }
    assert!(text.contains("3 conflicts") && !text.contains("d/large"), "{text}");
    assert_eq!(state(&trees.tree()), before);
    // The next run sees what the session has not changed.
    assert_eq!(trees.over("tail -n 1 d/large"), "theirs\n");
    assert_eq!(trees.over("tail -n 1 numbers; cat a/one"), "mine\none\n");
}

#[test]
fn a_file_that_changes_as_a_run_sees_it_is_no_mixture() {
    let trees = Trees::new(MAKE);
    let mut run = trees.lightpath(&[
        "run",
        "--over",
        ".",
        "--",
        "sh",
        "-c",
        "stat d/large > /dev/null; ls d; read line; cat d/large 2>&1",
    ]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let out = run.stdout.as_mut().unwrap();
    let mut seen = [0; 13];
    std::io::Read::read_exact(out, &mut seen).unwrap();
    assert_eq!(&seen, b"e\nhard\nlarge\n");
    // Its attributes were seen; its content is another by now.
    sh(&trees.tree(), "echo theirs >> d/large");
    drop(run.stdin.take());
    let mut text = String::new();
    std::io::Read::read_to_string(run.stdout.as_mut().unwrap(), &mut text).unwrap();
    assert!(!run.wait().unwrap().success());
    assert_eq!(text, "cat: d/large: Input/output error\n");
}

#[test]
fn bad_input_is_one_line() {
    let trees = Trees::new("mkdir d; echo f > f");
    let line = |text: String| {
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        text
    };
    assert!(line(trees.fails(&["run", "--over", "nowhere", "--", "true"])).contains("No such file"));
    assert!(line(trees.fails(&["run", "--over", "f", "--", "true"])).contains("Not a directory"));
    assert!(line(trees.fails(&["run", "--over", ".", "--region", "r", "--", "true"])).contains("--region"));
    for directory in ["/proc", "/sys", "/dev", "/dev/shm"] {
        let said = line(trees.fails(&["run", "--over", directory, "--", "true"]));
        assert!(said.contains("belongs to the kernel"), "{said}");
    }
    let lightpath = env!("CARGO_BIN_EXE_lightpath");
    let inside = trees.fails(&["run", "--", lightpath, "run", "--over", ".", "--", "true"]);
    assert!(line(inside).contains("inside a run"));
    assert!(line(trees.fails(&["diff"])).contains("no session"));
    assert!(line(trees.fails(&["apply", "--session", "x"])).contains("no session x"));
    trees.over("echo x > f");
    fs::rename(trees.tree(), trees.home.path().join("gone")).unwrap();
    for verb in ["diff", "apply"] {
        let mut command = trees.lightpath(&[verb, "--session", trees.session().as_str()]);
        let output = command.current_dir("/").output().unwrap();
        let said = line(String::from_utf8(output.stderr).unwrap());
        assert!(!output.status.success() && said.contains("tree has gone: No such file"), "{said}");
        assert!(trees.home.path().join("state/lightpath").join(trees.session()).exists());
    }
}

/// A tree with paths that no call takes.
#[test]
fn a_tree_deeper_than_paths_reach() {
    let trees = Trees::new("");
    let script = |step: &str, end: &str| {
        format!(
            "python3 - <<'END'\nimport os\nfd = os.open('.', os.O_RDONLY)\nfor n in range(4000):\n    {step}\n    \
             below = os.open('d', os.O_RDONLY, dir_fd=fd)\n    os.close(fd)\n    fd = below\n\
             end = os.open('end', os.O_RDWR | os.O_CREAT | os.O_APPEND, dir_fd=fd)\nprint(os.read(end, 99))\n{end}\nEND\n"
        )
    };
    let (read, append) = (script("pass", ""), script("pass", "os.write(end, b'more')"));
    sh(&trees.tree(), &script("os.mkdir('d', dir_fd=fd)", "os.write(end, b'more')"));
    assert_eq!(trees.over(&append), "b'more'\n");
    let end = format!("{}end", "d/".repeat(4000));
    assert_eq!(trees.says(&["diff"]), format!("M\t{end}\n"));
    assert!(trees.says(&["diff", "--patch"]).contains("\n+moremore\n"));
    assert_eq!(trees.over(&format!("echo n > n; {append}")), "b'moremore'\n");
    let path = |name: &str| trees.home.path().join(name).to_str().unwrap().to_owned();
    trees.says(&["export", "--tar", &path("all.tar")]);
    assert!(trees.says(&["apply", "--reverse", &path("reverse")]).starts_with("2 changes are in"));
    assert_eq!(sh(&trees.tree(), &format!("cat n; {read}")), "n\nb'moremoremore'\n");
    trees.says(&["undo", &path("reverse")]);
    assert_eq!(sh(&trees.tree(), &format!("ls; {read}")), "d\nb'more'\n");
    // Names that are made and removed there.
    let change = "os.mkdir('made', dir_fd=fd); os.symlink('nowhere', 'made/link', dir_fd=fd); os.remove('end', dir_fd=fd)";
    trees.over(&script("pass", change));
    trees.says(&["apply", "--reverse", &path("again")]);
    let listed =
        "print(sorted(os.listdir(fd)), os.readlink('made/link', dir_fd=fd)); os.remove('end', dir_fd=fd)";
    assert_eq!(sh(&trees.tree(), &script("pass", listed)), "b''\n['end', 'made'] nowhere\n");
    trees.says(&["undo", &path("again")]);
    assert_eq!(sh(&trees.tree(), &script("pass", "print(os.listdir(fd))")), "b'more'\n['end']\n");
    // The library would remove it recursively.
    sh(&trees.tree(), "rm -rf d");
}

#[test]
fn a_session_in_use_is_left_alone() {
    let trees = Trees::new("echo f > f");
    let mut run = trees.lightpath(&["run", "--over", ".", "--", "sh", "-c", "echo x > f; echo; read line"]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut byte).unwrap();
    assert_eq!(trees.says(&["diff"]), "M\tf\n");
    assert!(trees.fails(&["apply"]).contains("in use"));
    assert!(trees.fails(&["discard"]).contains("in use"));
    drop(run.stdin.take());
    run.wait().unwrap();
    trees.says(&["apply"]);
    assert_eq!(fs::read_to_string(trees.tree().join("f")).unwrap(), "x\n");
}

/// Inside a run the processes of runs cannot be seen, and a region of another version cannot be read.
#[test]
fn a_session_whose_users_cannot_be_seen_is_not_discarded() {
    let trees = Trees::new("echo f > f");
    let lightpath = env!("CARGO_BIN_EXE_lightpath");
    let inside = format!(
        "echo x > f; for verb in diff apply discard; do {lightpath} $verb 2>&1 && echo $verb; done; cat f"
    );
    let text = trees.over(&inside);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[..2].iter().all(|line| line.contains("ask from outside")), "{text}");
    assert!(lines[2].contains("is in use") && lines[3..] == ["x"], "{text}");
    assert_eq!(trees.says(&["diff"]), "M\tf\n");
    let region = trees.home.path().join("state/lightpath").join(trees.session()).join("region");
    let file = fs::File::options().read(true).write(true).open(&region).unwrap();
    // The version.
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff], 8).unwrap();
    assert!(trees.fails(&["diff"]).contains("use the one that made it"));
    assert!(trees.fails(&["discard"]).contains("is in use"));
    drop(file);
    trees.says(&["discard"]);
    assert_eq!(trees.says(&["sessions"]), "");
}

#[test]
fn large_and_deep_directories() {
    let make = "mkdir many; cd many; seq -f 'file-with-a-rather-long-name-%g' 1 5000 | xargs touch; cd ..; \
        i=0; while [ $i -lt 300 ]; do mkdir deep-$i; cd deep-$i; i=$((i+1)); done; echo deep > deep";
    let trees = Trees::new(make);
    let count =
        "ls many | wc -l; ls many | sort | md5sum; find . | wc -l; find . -name deep -execdir cat {} +";
    assert_eq!(trees.over(count), sh(&trees.copy(), count));
    let change = "rm many/*7; find . -name deep -execdir sh -c 'echo more >> deep' ';'";
    trees.over(change);
    sh(&trees.copy(), change);
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

#[test]
fn several_processes_look_at_once() {
    let trees = Trees::new(
        "for i in 1 2 3 4 5 6 7 8; do mkdir -p d$i/e; seq 1 $((i * 20000)) > d$i/e/f; seq -f d$i/n%g 1 300 | xargs touch; done",
    );
    let look =
        "for i in 1 2 3 4 5 6; do (find . | sort | md5sum; md5sum d*/e/f | sort | md5sum) & done; wait";
    let expected = sh(&trees.copy(), "find . | sort | md5sum; md5sum d*/e/f | sort | md5sum");
    let mut lines: Vec<String> = trees.over(look).lines().map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    let mut expected: Vec<&str> = expected.lines().collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn links_in_directories_that_are_taken_in_at_once_are_one_file() {
    let trees = Trees::new(
        "mkdir d1 d2 d3 d4; seq -f d1/n%g 1 200 | xargs touch; for i in 2 3 4; do ln d1/* d$i; done",
    );
    let numbers = trees.over(
        "for i in 1 2 3 4; do stat d$i/* >/dev/null & done; wait; stat -c '%i %n' d?/* | sed 's:d./::' | sort -u | wc -l",
    );
    assert_eq!(numbers.trim(), "200");
}

#[test]
fn what_a_user_may_not_read_stays_unread() {
    if !is_root() {
        return;
    }
    let trees =
        Trees::new("mkdir shut; echo s > shut/s; chmod 700 shut; echo k > key; chmod 600 key; echo o > open");
    fs::set_permissions(trees.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let state = trees.home.path().join("user");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65534), Some(65534)).unwrap();
    let script = "cat open; cat key; ls shut; cat shut/s; chown 0 open; echo x > open; id -u";
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let over = run(&mut trees.lightpath_as(65534, &state, &["run", "--over", ".", "--", "sh", "-c", script]));
    let plain = run(Command::new("sh").args(["-c", script]).current_dir(trees.copy()).uid(65534).gid(65534));
    assert_eq!(over, plain);
}

/// Whether a command ends well, beside one that is stopped.
fn ends(mut command: Command) -> bool {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while std::time::Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

#[test]
fn an_apply_that_is_killed_is_finished_by_the_next() {
    let change = "echo more >> a/one; rm -r d; echo file > d; mv a/b b; mkdir -p n/m; echo n > n/m/n; rm numbers; ln a/one uno; chmod 700 a";
    let mut ended = false;
    let (mut calls, step) = trees::kills(100, 83);
    let mut kills = 0;
    while !ended {
        let trees = Trees::new(MAKE);
        trees.over(change);
        sh(&trees.copy(), change);
        ended = killed_at(&mut trees.lightpath(&["apply"]), calls);
        // It may have ended the session.
        if trees.home.path().join("state/lightpath").join(trees.session()).exists() {
            trees.says(&["apply"]);
        }
        assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST), "killed at call {calls}");
        calls += step;
        kills += 1;
    }
    assert!(kills > 5, "{kills} kills");
}

#[test]
fn a_look_that_is_killed_leaves_nothing_half_there() {
    let make = "mkdir -p a/b c; seq -f a/n%g 1 200 | xargs touch; seq 1 500000 > c/large; echo x > a/b/x; ln a/b/x c/x; ln -s x c/s; seq 1 9000 > c/small";
    let trees = Trees::new(make);
    let expected = sh(&trees.copy(), LIST);
    let mut ended = false;
    let (mut calls, step) = trees::kills(400, 131);
    let mut kills = 0;
    while !ended {
        // One process: it becomes the command.
        let mut look = trees
            .lightpath(&["run", "--over", ".", "--", "md5sum", "c/large", "c/small", "a/b/x", "a/n7", "c/x"]);
        ended = killed_at(&mut look, calls);
        assert_eq!(trees.over(LIST), expected, "killed at call {calls}");
        assert_eq!(trees.says(&["diff"]), "", "killed at call {calls}");
        let region = trees.home.path().join("state/lightpath").join(trees.session()).join("region");
        let region = CString::new(region.as_os_str().as_bytes()).unwrap();
        let checked = Command::new(env!("CARGO_BIN_EXE_lightpath"))
            .arg("fsck")
            .arg(OsStr::from_bytes(region.as_bytes()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(
            !text.contains("structure") && !text.contains("inconsistent"),
            "killed at call {calls}: {text}"
        );
        trees.says(&["discard"]);
        calls += step;
        kills += 1;
    }
    assert!(kills > 5, "{kills} kills");
}

/// A look that is stopped keeps nobody from another directory, with a name of the same file in it; and one
/// that is killed leaves every name with its extended attributes.
#[test]
fn a_session_whose_region_was_being_made_begins_anew() {
    let trees = Trees::new("echo f > f");
    trees.over("true");
    // What a launcher leaves that is killed between ftruncate(2) and the header.
    let file = trees.home.path().join("state/lightpath").join(trees.session()).join("region");
    fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(trees.over("cat f; echo g > f"), "f\n");
    assert_eq!(trees.says(&["diff"]), "M\tf\n");
}

#[test]
fn a_look_that_is_stopped_delays_no_other_directory() {
    let make = "mkdir p q; echo l > p/l; ln p/l q/l; echo f > p/f; ln p/f p/g; setfattr -n user.k -v l p/l; setfattr -n user.k -v f p/f";
    let trees = Trees::new(make);
    let list = "getfattr -d p/f p/g p/l q/l; [ $(stat -c %i p/l) = $(stat -c %i q/l) ] && [ $(stat -c %i p/f) = $(stat -c %i p/g) ] && echo linked";
    let expected = sh(&trees.copy(), list);
    assert!(expected.ends_with("linked\n"), "{expected}");
    let (mut calls, step) = trees::kills(200, 16);
    let mut stops = 0;
    loop {
        // The directory that both are in has been looked into: they change different ones.
        trees.over("ls .");
        let mut look = trees.lightpath(&["run", "--over", ".", "--", "stat", "p/l"]);
        let Some(pid) = stopped_at(&mut look, calls) else { break };
        // A launcher holds the region file's flock as it starts.
        if fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() == "lightpath" {
            kill(pid);
            calls += 40;
            continue;
        }
        let other = trees.lightpath(&["run", "--over", ".", "--", "stat", "q/l"]);
        assert!(ends(other), "a look beside one stopped at call {calls}");
        kill(pid);
        assert_eq!(trees.over(list), expected, "killed at call {calls}");
        trees.says(&["discard"]);
        calls += step;
        stops += 1;
    }
    assert!(stops > 4, "{stops} stops");
}

#[test]
fn attributes_are_the_hosts() {
    let trees = Trees::new(MAKE);
    let stat = "export LC_ALL=C; stat -c '%n %f %h %u %g %s %Y %Z' numbers a/one d/large d/e/soft pipe; stat -c '%n %f %h %Y %Z' a a/b d/e keep";
    assert_eq!(trees.over(stat), sh(&trees.tree(), stat));
    let tree = trees.tree();
    let listed = fs::metadata(tree.join("keep/file")).unwrap();
    assert_eq!(trees.over("stat -c %Y keep/file").trim(), listed.mtime().to_string());
    let trees =
        Trees::new("mkdir d; setfattr -n user.k -v top .; setfattr -n user.k -v in d; setfacl -m u:7:rx . d");
    let attributes = "getfattr -d -m - . d; getfacl . d; mkdir e; getfacl e";
    assert_eq!(trees.over(attributes), sh(&trees.tree(), &format!("{attributes}; rmdir e")));
    assert_eq!(trees.says(&["diff"]), "");
}

#[test]
fn a_command_that_joins_begins_in_what_the_run_shows() {
    let trees = Trees::new("echo precious > p; mkdir d; echo q > d/q");
    let pid = trees.home.path().join("pid");
    let joins = |script: &str| {
        let lightpath = env!("CARGO_BIN_EXE_lightpath");
        format!("{lightpath} exec $(cat {}) -- sh -c '{script}'", pid.display())
    };
    let wait = "echo $$ > ../pid; : > $READY; read line; ls";
    assert_eq!(trees.beside(wait, &joins("rm p; cd d; rm q; echo n > ../n")), "d\nn\n");
    assert_eq!(sh(&trees.tree(), "find . -type f | sort"), "./d/q\n./p\n");
    // A directory that the run does not show is none to begin in.
    let gone = format!("rmdir d; {wait}");
    let refused = format!("cd d; {} 2>&1 || echo $?", joins("true"));
    trees.beside(&gone, &format!("{{ {refused}; }} > ../said"));
    let text = fs::read_to_string(trees.home.path().join("said")).unwrap();
    assert!(text.contains("in the mount: No such file or directory") && text.ends_with("\n1\n"), "{text}");
}
