//! `lightpath apply` of a part, with an undo, and at the end of a run.

mod trees;

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use trees::{LIST, MAKE, Trees, is_root, kill, killed_at, said, sh, state, stopped_at, stops};

/// What is done over the tree, and to the copy.
const CHANGE: &str = "echo more >> a/one; rm -r d/e; mv a/b b; mkdir -p n/m/o; echo n > n/m/n; echo o > n/m/o/o; \
    sed -i 1d numbers; rm dangling; mkdir dangling; echo in > dangling/in; ln b/two zwei; chmod 640 run.sh; rm -r keep; echo k > keep";

#[test]
fn holes_stay_holes() {
    const MAKE: &str = "truncate -s 1G sparse; echo end >> sparse; printf x | dd of=sparse bs=1 seek=77777 conv=notrunc 2> /dev/null";
    let trees = Trees::new("echo old > sparse");
    trees.over(&format!("{MAKE}; head -c 5000001 /dev/urandom > dense; md5sum dense > sum"));
    trees.says(&["apply"]);
    sh(&trees.copy(), MAKE);
    let look = "stat -c %s sparse; tail -c 4 sparse; head -c 100000 sparse | md5sum";
    assert_eq!(sh(&trees.tree(), look), sh(&trees.copy(), look));
    assert_eq!(sh(&trees.tree(), "md5sum -c sum"), "dense: OK\n");
    let blocks = sh(&trees.tree(), "stat -c %b sparse");
    assert!(blocks.trim().parse::<u64>().unwrap() < 1000, "{blocks} blocks of 512 bytes");
}

/// Holes of the host's files are holes in the session, and afterwards.
#[test]
fn holes_of_the_hosts_files_stay_holes() {
    const MAKE: &str = "for n in moved written read; do truncate -s 1T $n; printf x | dd of=$n bs=1 seek=5000000000 conv=notrunc 2> /dev/null; \
        printf end | dd of=$n bs=1 seek=1099511620000 conv=notrunc 2> /dev/null; done; truncate -s 9M small; truncate -s 20M mapped; \
        printf m | dd of=mapped bs=1 seek=10000000 conv=notrunc 2> /dev/null";
    let trees = Trees::new("true");
    sh(&trees.tree(), MAKE);
    let script = "mkdir d; mv moved d/moved; chmod 600 d/moved; printf y | dd of=written bs=1 seek=70000 conv=notrunc 2> /dev/null; \
        for n in 1 2 3; do tail -c 9000 read | tr -d '\\0'; dd if=read bs=1 skip=4999999999 count=3 2> /dev/null | tr '\\0' _; done; mv small d; \
        python3 -c \"import mmap
f = open('mapped', 'rb')
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print(m[0], m[10000000], m[-1], sum(m[9990000:10010000]), sum(m[4096 * 1000:4096 * 1100]))\"";
    let end = "0 109 0 109 0\n";
    assert_eq!(trees.over(script), format!("{}{end}", "end_x_".repeat(3)));
    trees.says(&["apply"]);
    let look = "cd d; stat -c '%n %s' moved small ../written; \
        for f in moved ../written; do tail -c 8000 $f | tr -d '\\0'; dd if=$f bs=1 skip=5000000000 count=1 2> /dev/null; done; \
        dd if=../written bs=1 skip=70000 count=1 2> /dev/null";
    let sizes = "moved 1099511627776\nsmall 9437184\n../written 1099511627776\n";
    assert_eq!(sh(&trees.tree(), look), format!("{sizes}endxendxy"));
    let blocks = sh(&trees.tree(), "stat -c %b d/moved d/small written");
    assert!(blocks.lines().all(|line| line.parse::<u64>().unwrap() < 1000), "{blocks}");
}

#[test]
fn a_part_is_applied_and_the_session_keeps_the_rest() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    let view = trees.over(LIST);
    let text = trees.says(&["apply", "n/m/n", "numbers", "keep"]);
    assert!(text.starts_with("5 changes are in"), "{text}");
    assert_eq!(fs::read_to_string(trees.tree().join("n/m/n")).unwrap(), "n\n");
    assert!(!trees.tree().join("n/m/o").exists() && trees.tree().join("d/e").exists());
    assert_eq!(fs::read_to_string(trees.tree().join("keep")).unwrap(), "k\n");
    let left = trees.says(&["diff"]);
    for path in ["numbers", "keep", "n/m/n"] {
        assert!(!left.lines().any(|line| line.ends_with(&format!("\t{path}"))), "{path} is still in {left}");
    }
    assert!(left.contains("n/m/o/o") && left.contains("a/one"), "{left}");
    // The view stays, and so do changes of what was applied.
    assert_eq!(trees.over(LIST), view);
    trees.over("echo again >> numbers; echo again >> n/m/n; rm keep; mkdir keep");
    sh(&trees.copy(), CHANGE);
    sh(&trees.copy(), "echo again >> numbers; echo again >> n/m/n; rm keep; mkdir keep");
    assert_eq!(trees.says(&["diff", "numbers", "n/m/n", "keep"]), "T\tkeep/\nM\tn/m/n\nM\tnumbers\n");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
    assert_eq!(trees.says(&["sessions"]), "");
}

#[test]
fn one_path_after_the_other_is_all_of_it() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    sh(&trees.copy(), CHANGE);
    for path in ["n/m/o", "b", "a", "dangling/in", "d", "zwei", "run.sh", "keep", "n"] {
        trees.says(&["apply", path]);
    }
    // The last one takes what is left.
    trees.says(&["apply", "numbers"]);
    assert_eq!(trees.says(&["sessions"]), "");
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

#[test]
fn one_name_of_a_rename_is_an_addition_or_a_deletion() {
    let trees = Trees::new(MAKE);
    trees.over("mv a/one d/eins; mv d/large groß");
    trees.says(&["apply", "d/eins"]);
    assert_eq!(fs::read_to_string(trees.tree().join("d/eins")).unwrap(), "one\n");
    assert!(trees.tree().join("a/one").exists());
    trees.says(&["apply", "d/large"]);
    assert!(!trees.tree().join("d/large").exists() && !trees.tree().join("groß").exists());
    let left = trees.says(&["diff"]);
    assert!(left.contains("D\ta/one\n") && left.contains("A\t"), "{left}");
    trees.says(&["apply"]);
    sh(&trees.copy(), "mv a/one d/eins; mv d/large groß");
    assert_eq!(
        sh(&trees.tree(), "find . -type f -exec md5sum {} + | sort"),
        sh(&trees.copy(), "find . -type f -exec md5sum {} + | sort")
    );
}

#[test]
fn a_part_in_the_way_of_nothing_is_applied_beside_a_conflict() {
    let trees = Trees::new(MAKE);
    trees.over("echo mine >> numbers; echo mine >> a/one");
    sh(&trees.tree(), "echo theirs >> numbers");
    let before = state(&trees.tree());
    assert!(trees.fails(&["apply", "numbers"]).contains("conflict: numbers "));
    assert!(trees.fails(&["apply", "a/b"]).contains("nothing has changed there"));
    trees.says(&["apply", "--check", "a"]);
    assert_eq!(state(&trees.tree()), before);
    trees.says(&["apply", "a"]);
    assert_eq!(fs::read_to_string(trees.tree().join("a/one")).unwrap(), "one\nmine\n");
    assert!(trees.fails(&["apply"]).contains("conflict: numbers "));
}

#[test]
fn a_partial_apply_that_is_killed_is_finished_by_the_next() {
    let (mut calls, step) = trees::kills(150, 173);
    let (mut ended, mut kills) = (false, 0);
    while !ended {
        let trees = Trees::new(MAKE);
        trees.over(CHANGE);
        sh(&trees.copy(), CHANGE);
        ended = killed_at(&mut trees.lightpath(&["apply", "n", "a", "b", "dangling"]), calls);
        trees.says(&["apply"]);
        assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST), "killed at call {calls}");
        calls += step;
        kills += 1;
    }
    assert!(kills > 3, "{kills} kills");
}

#[test]
fn a_session_that_ends_is_whole_or_gone() {
    let change = "echo mine >> f; rmdir d";
    let made = || {
        let trees = Trees::new("echo f > f; mkdir d");
        trees.over(change);
        trees
    };
    for end in ["apply", "discard"] {
        let all = stops(&mut made().lightpath(&[end]));
        // From the removal of the first file to the end.
        for calls in (all - 60..all).step_by(2) {
            let trees = made();
            killed_at(&mut trees.lightpath(&[end]), calls);
            let sessions = trees.home.path().join("state/lightpath");
            if sessions.join(trees.session()).exists() {
                trees.says(&[end]);
            }
            if end == "apply" {
                sh(&trees.copy(), change);
            }
            assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST), "{end} killed at stop {calls}");
            // A new session has nothing of it.
            assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST), "{end} killed at stop {calls}");
            assert_eq!(trees.says(&["diff"]), "", "{end} killed at stop {calls}");
            assert_eq!(fs::read_dir(sessions).unwrap().count(), 1, "{end} killed at stop {calls}");
        }
    }
}

/// An apply that cannot write a file leaves nothing of it, and the next one writes it.
#[test]
fn an_apply_without_space_leaves_no_part_of_a_file() {
    let trees = Trees::new("echo f > f");
    trees.over("head -c 1000000 /dev/zero > large; echo more >> f");
    let lightpath = env!("CARGO_BIN_EXE_lightpath");
    let state = trees.home.path().join("state");
    let apply = format!(
        "trap '' XFSZ; ulimit -f 200; XDG_STATE_HOME={} {lightpath} apply 2>&1; ls -A",
        state.display()
    );
    let said = sh(&trees.tree(), &apply);
    assert!(said.contains("File too large") && !said.contains(".lightpath"), "{said}");
    let diff = trees.lightpath(&["diff"]).output().unwrap();
    let line = String::from_utf8(diff.stderr).unwrap();
    assert!(line.contains("was interrupted: lightpath apply goes on"), "{line}");
    assert!(line.lines().count() == 1 && diff.status.success(), "{line}");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "ls -A; wc -c < large; cat f"), "f\nlarge\n1000000\nf\nmore\n");
}

#[test]
fn no_run_starts_as_an_apply_writes() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    sh(&trees.copy(), CHANGE);
    let journal = trees.home.path().join("state/lightpath").join(trees.session()).join("journal");
    let mut calls = 150;
    let stopped = loop {
        let stopped = stopped_at(&mut trees.lightpath(&["apply"]), calls).unwrap();
        if journal.exists() {
            break stopped;
        }
        kill(stopped);
        calls += 50;
    };
    for args in [&["run", "--over", ".", "--", "touch", "ran"][..], &["discard"], &["apply"]] {
        let text = trees.fails(args);
        assert!(text.contains("is being started, applied or discarded"), "{args:?}: {text}");
    }
    kill(stopped);
    assert!(trees.fails(&["run", "--over", ".", "--", "touch", "ran"]).contains("interrupted"));
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

/// All of a tree but times of change and inode numbers, and the times of modification of files.
const WHOLE: &str = "export LC_ALL=C; find . -not -type d -printf '%P %y %m %U %G %s %n %l %T@\n' | sort; \
    find . -type d -printf '%P %m %U %G\n' | sort; find . -type f -exec md5sum {} + | sort; getfattr -R -d . 2>/dev/null || true";

#[test]
fn an_apply_is_undone() {
    for paths in [&[][..], &["n", "b", "a", "keep", "dangling"]] {
        let trees = Trees::new(MAKE);
        sh(&trees.tree(), "setfattr -n user.k -v v numbers || true");
        let before = sh(&trees.tree(), WHOLE);
        trees.over(CHANGE);
        trees.over("setfattr -n user.k -v w numbers");
        let file = trees.home.path().join("undo.tar");
        let file = file.to_str().unwrap();
        trees.says(&[&["apply", "--reverse", file], paths].concat());
        assert_ne!(sh(&trees.tree(), WHOLE), before);
        trees.says(&["undo", "--check", file]);
        trees.says(&["undo", file]);
        assert_eq!(sh(&trees.tree(), WHOLE), before);
        trees.says(&["undo", file]);
        assert_eq!(sh(&trees.tree(), WHOLE), before);
    }
}

#[test]
fn a_removed_fifo_is_brought_back() {
    let trees = Trees::new("mkfifo -m 640 p; echo f > f");
    let before = sh(&trees.tree(), WHOLE);
    trees.over("rm p f");
    let file = trees.home.path().join("undo.tar");
    let file = file.to_str().unwrap();
    trees.says(&["apply", "--reverse", file]);
    assert_eq!(sh(&trees.tree(), "ls"), "");
    trees.says(&["undo", file]);
    assert_eq!(sh(&trees.tree(), WHOLE), before);
}

/// Values of attributes with any bytes: an ACL that names user 10 has a line feed.
#[test]
fn attributes_with_any_bytes_are_brought_back() {
    let trees = Trees::new(
        "set -e; for f in f g; do echo $f > $f; setfacl -m u:10:rw,g:10:r $f; setfattr -n user.n -v 0x0a0a3d000a $f; \
         setfattr -n user.a=b%3D -v 0x0a3131 $f; setfattr -n user.empty $f; done; touch -d '1960-01-02 03:04:05.5' g",
    );
    let look = "getfacl f g; getfattr -d -m - -e hex f g; stat -c '%n %a %y' f g";
    let before = sh(&trees.tree(), look);
    trees.over("rm f g; echo new > g");
    let file = trees.home.path().join("undo.tar");
    let file = file.to_str().unwrap();
    trees.says(&["apply", "--reverse", file]);
    trees.says(&["undo", file]);
    assert_eq!(sh(&trees.tree(), look), before);
}

#[test]
fn a_removed_socket_is_brought_back() {
    let trees = Trees::new("mkdir d");
    drop(std::os::unix::net::UnixListener::bind(trees.tree().join("s")).unwrap());
    drop(std::os::unix::net::UnixListener::bind(trees.tree().join("d/t")).unwrap());
    sh(&trees.tree(), "chmod 751 s; ln d/t u");
    let look = "stat -c '%n %F %a %u %h %y' s d/t u";
    let before = sh(&trees.tree(), look);
    trees.over("rm s d/t u; echo file > s");
    let file = trees.home.path().join("undo.tar");
    let file = file.to_str().unwrap();
    trees.says(&["apply", "--reverse", file]);
    assert_eq!(sh(&trees.tree(), "cat s"), "file\n");
    trees.says(&["undo", file]);
    assert_eq!(sh(&trees.tree(), look), before);
    trees.says(&["undo", file]);
    assert_eq!(sh(&trees.tree(), look), before);
}

/// The session has not changed the directory, so neither does an apply.
#[test]
fn directories_keep_their_times() {
    let trees = Trees::new(
        "mkdir -p d/e; echo one > d/one; echo two > d/e/two; echo three > three; touch -d 2001-02-03T04:05:06.789 d/e d .",
    );
    let times = "stat -c '%n %y' . d d/e";
    let before = sh(&trees.tree(), times);
    trees.over("echo more >> d/one; echo more >> three; echo new > d/e/new");
    let file = trees.home.path().join("undo.tar");
    let file = file.to_str().unwrap();
    let shown = trees.over(times);
    trees.says(&["apply", "--reverse", file]);
    assert_eq!(sh(&trees.tree(), times), shown);
    assert_ne!(shown, before);
    trees.says(&["undo", file]);
    assert_eq!(sh(&trees.tree(), times), before);
}

#[test]
fn an_undo_overwrites_nothing_that_came_later() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    let file = trees.home.path().join("undo.tar");
    let file = file.to_str().unwrap();
    assert!(trees.fails(&["apply", "--reverse", "undo.tar"]).contains("not below"));
    fs::write(file, "precious").unwrap();
    assert!(trees.fails(&["apply", "--reverse", file]).contains("exists"));
    assert!(trees.fails(&["undo", file]).contains("undo.tar undoes no apply"));
    fs::remove_file(file).unwrap();
    trees.says(&["apply", "--reverse", file]);
    sh(&trees.tree(), "echo later >> numbers; echo later > n/later");
    let before = state(&trees.tree());
    let text = trees.fails(&["undo", file]);
    assert!(text.contains("conflict: numbers ") && text.contains("conflict: n/later "), "{text}");
    assert!(text.contains("2 conflicts"), "{text}");
    assert_eq!(state(&trees.tree()), before);
}

#[test]
fn an_apply_with_an_undo_that_is_killed_can_be_undone() {
    let (mut calls, step) = trees::kills(150, 199);
    let (mut ended, mut kills) = (false, 0);
    while !ended {
        let trees = Trees::new(MAKE);
        let before = sh(&trees.tree(), WHOLE);
        trees.over(CHANGE);
        let file = trees.home.path().join("undo.tar");
        let file = file.to_str().unwrap();
        ended = killed_at(&mut trees.lightpath(&["apply", "--reverse", file]), calls);
        let begun = trees.home.path().join("state/lightpath").join(trees.session()).join("journal").exists();
        if begun {
            trees.says(&["apply"]);
        }
        // An apply that was killed behind its last step is whole.
        if sh(&trees.tree(), WHOLE) != before {
            let killed = killed_at(&mut trees.lightpath(&["undo", file]), calls);
            if !killed {
                trees.says(&["undo", file]);
            }
        }
        assert_eq!(sh(&trees.tree(), WHOLE), before, "killed at call {calls}");
        calls += step;
        kills += 1;
    }
    assert!(kills > 3, "{kills} kills");
}

/// Runs a command on a terminal of its own, which types `keys`.
fn on_a_terminal(command: &mut Command, keys: &str) -> String {
    let line = std::iter::once(command.get_program().to_owned())
        .chain(command.get_args().map(ToOwned::to_owned))
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect::<Vec<_>>()
        .join(" ");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    for (name, value) in command.get_envs() {
        script.env(name, value.unwrap());
    }
    let mut child = script.current_dir(command.get_current_dir().unwrap()).spawn().unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), keys.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn ask_asks() {
    let ask = |trees: &Trees, keys: &str| {
        let mut run = trees.lightpath(&["run", "--over", ".", "--ask", "--", "sed", "-i", "1d", "numbers"]);
        on_a_terminal(&mut run, keys)
    };
    let trees = Trees::new(MAKE);
    let before = state(&trees.tree());
    let text = trees.fails(&["run", "--over", ".", "--ask", "--", "touch", "ran"]);
    assert!(text.contains("needs a terminal") && text.trim_end().lines().count() == 1, "{text}");
    assert_eq!(trees.says(&["sessions"]), "");
    let text = ask(&trees, "d\n");
    assert!(text.contains(" numbers | 1 -") && text.contains("Apply, keep or discard?"), "{text}");
    assert_eq!(trees.says(&["sessions"]), "");
    ask(&trees, "k\n");
    assert_eq!(trees.says(&["diff"]), "M\tnumbers\n");
    assert_eq!(state(&trees.tree()), before);
    ask(&trees, "a\n");
    assert!(fs::read_to_string(trees.tree().join("numbers")).unwrap().starts_with("3\n"));
    assert_eq!(trees.says(&["sessions"]), "");
    // What no listing shows is a change as well.
    let mut run = trees.lightpath(&["run", "--over", ".", "--ask", "--", "mkdir", "fresh"]);
    let text = on_a_terminal(&mut run, "a\n");
    assert!(
        text.contains("only empty directories or times") && trees.tree().join("fresh").exists(),
        "{text}"
    );
}

/// What the session has made a link of, and the reverse; `o` and `p` hold the same names as the directories.
const LINKS: &str = "rm -r d; ln -s o d; rm l; mkdir l; echo mine > l/x; rm k; mkdir k; echo mine > k/new";

#[test]
fn links_in_place_of_directories_lead_nowhere() {
    let make = "mkdir d o p; echo x > d/x; echo o > o/x; echo p > p/x; ln -s p l; ln -s k k; ln -s . self";
    for paths in [&[][..], &["d", "l", "k"]] {
        let trees = Trees::new(make);
        let before = sh(&trees.tree(), LIST);
        trees.over(LINKS);
        sh(&trees.copy(), LINKS);
        let undo = trees.home.path().join("undo.tar");
        let undo = undo.to_str().unwrap();
        trees.says(&[&["apply", "--reverse", undo], paths].concat());
        assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
        trees.says(&["undo", undo]);
        assert_eq!(sh(&trees.tree(), LIST), before);
    }
}

/// Directories that their owner has closed, as package managers leave them.
const CLOSED: &str = "mkdir -p old/in kept; echo 1 > old/f; echo 2 > old/in/f; echo 3 > kept/f; \
    echo 4 > kept/g; chmod 555 old/in old kept";

/// Does what an owner does about them.
const OPENED: &str = "chmod -R u+w old kept; rm -r old; echo more >> kept/f; rm kept/g; echo n > kept/n; \
    chmod 555 kept; mkdir -p made/in; echo 5 > made/in/f; chmod 555 made/in made";

/// What stands in the closed directories is changed by whoever owns them.
#[test]
fn closed_directories_are_applied_and_undone() {
    const NOBODY: u32 = 65534;
    if !trees::is_root() {
        return;
    }
    let own = |trees: &Trees| {
        sh(
            trees.home.path(),
            &format!("chmod 755 .; mkdir state; chown -R {NOBODY}:{NOBODY} state tree copy"),
        );
    };
    let user =
        |trees: &Trees, args: &[&str]| trees.lightpath_as(NOBODY, &trees.home.path().join("state"), args);
    let says = |trees: &Trees, args: &[&str]| trees::said(&user(trees, args).output().unwrap());
    let (mut calls, step) = trees::kills(300, 211);
    loop {
        let trees = Trees::new(CLOSED);
        own(&trees);
        let before = sh(&trees.tree(), LIST);
        says(&trees, &["run", "--over", ".", "--", "sh", "-c", OPENED]);
        sh(
            &trees.copy(),
            &format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sh -c '{OPENED}'"),
        );
        let undo = trees.home.path().join("state/undo");
        let undo = undo.to_str().unwrap();
        let mut ended = killed_at(&mut user(&trees, &["apply", "--reverse", undo]), calls);
        if trees.home.path().join("state/lightpath").join(trees.session()).join("journal").exists() {
            says(&trees, &["apply"]);
        }
        if sh(&trees.tree(), LIST) != before {
            assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST), "killed at call {calls}");
            ended &= killed_at(&mut user(&trees, &["undo", undo]), calls);
            says(&trees, &["undo", undo]);
            assert_eq!(sh(&trees.tree(), LIST), before, "killed at call {calls}");
        }
        if ended {
            break;
        }
        calls += step;
    }
}

/// What another user owns and lets this one write, apply writes as the command would have.
#[test]
fn what_is_anothers_is_written_as_by_the_command() {
    if !is_root() {
        return;
    }
    let trees =
        Trees::new("mkdir d s; echo f > d/f; echo s > s/s; echo gone > d/gone; chmod 777 . d; chmod 1777 s");
    for tree in [trees.tree(), trees.copy()] {
        sh(&tree, "chown -R nobody .; chown root . d; chmod 666 d/f s/s");
    }
    fs::set_permissions(trees.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let state = trees.home.path().join("user");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65533), Some(65533)).unwrap();
    let lightpath = |args: &[&str]| said(&trees.lightpath_as(65533, &state, args).output().unwrap());
    let change =
        "umask 022; echo more >> d/f; echo more >> s/s; rm d/gone; echo n > n; mkdir d/n; echo n > d/n/n";
    lightpath(&["run", "--over", ".", "--", "sh", "-c", change]);
    assert!(lightpath(&["apply"]).contains("are in"));
    let plain =
        Command::new("sh").args(["-c", change]).current_dir(trees.copy()).uid(65533).gid(65533).output();
    said(&plain.unwrap());
    let list = format!("{LIST}\ncat d/f s/s; ls -Ad .??* d/.??* s/.??* 2>/dev/null || true");
    assert_eq!(sh(&trees.tree(), &list), sh(&trees.copy(), &list));
}

#[test]
fn processes_that_live_on_keep_the_session() {
    let trees = Trees::new("echo f > f");
    let script = "(exec > /dev/null 2>&1; while ! test -e ../go; do sleep 0.05; done; echo late > late; : > ../done) & echo early > early";
    let text = trees.fails(&["run", "--over", ".", "--apply", "--", "sh", "-c", script]);
    assert!(text.lines().count() == 1 && text.contains("live on: session"), "{text}");
    assert_eq!(sh(&trees.tree(), "ls; : > ../go; while ! test -e ../done; do sleep 0.05; done"), "f\n");
    sh(&trees.tree(), "sleep 0.5");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "ls; cat late"), "early\nf\nlate\nlate\n");
    // One that ends soon is waited for.
    trees.says(&[
        "run",
        "--over",
        ".",
        "--apply",
        "--",
        "sh",
        "-c",
        "(exec > /dev/null; sleep 0.1; echo s > soon) &",
    ]);
    assert_eq!(sh(&trees.tree(), "cat soon"), "s\n");
}

#[test]
fn a_half_written_tree_is_only_left_so_by_force() {
    let trees = Trees::new(MAKE);
    trees.over(CHANGE);
    let journal = trees.home.path().join("state/lightpath").join(trees.session()).join("journal");
    let mut calls = 150;
    while !journal.exists() {
        killed_at(&mut trees.lightpath(&["apply"]), calls);
        calls += 50;
    }
    let temporary = fs::read_to_string(journal.with_file_name("temporary")).unwrap();
    fs::write(trees.tree().join("a").join(temporary), "half").unwrap();
    let text = trees.fails(&["discard"]);
    assert!(text.contains("finish it with lightpath apply") && text.lines().count() == 1, "{text}");
    trees.says(&["discard", "--force"]);
    assert_eq!(sh(&trees.tree(), "find . -name '.lightpath*'"), "");
    assert_eq!(trees.says(&["sessions"]), "");
}

#[test]
fn a_mode_that_both_have_changed_is_a_conflict() {
    let trees = Trees::new("mkdir d e g");
    trees.over("chmod 700 d e; echo f > g/f");
    sh(&trees.tree(), "chmod 750 d; chmod 700 e; chmod 711 g");
    assert!(trees.fails(&["apply"]).contains("conflict: d has changed on the host"));
    sh(&trees.tree(), "chmod 755 d");
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "stat -c '%a %n' d e g; cat g/f"), "700 d\n700 e\n711 g\nf\n");
}

/// Sessions over one directory that are applied at once.
#[test]
fn applies_at_once_write_their_own() {
    let trees = Trees::new("mkdir d; echo mine > d/.lightpath-apply");
    for name in ["one", "two"] {
        let script = format!("for n in $(seq 60); do echo {name} > d/{name}$n; done");
        trees.says(&["run", "--session", name, "--over", ".", "--", "sh", "-c", &script]);
    }
    let applies = ["one", "two"].map(|name| {
        let mut apply = trees.lightpath(&["apply", "--session", name]);
        apply.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for apply in applies {
        said(&apply.wait_with_output().unwrap());
    }
    for name in ["one", "two"] {
        let look = format!("cat d/{name}*; ls d/{name}* | wc -l");
        assert_eq!(sh(&trees.tree(), &look), format!("{}60\n", format!("{name}\n").repeat(60)));
    }
    assert_eq!(sh(&trees.tree(), "cat d/.lightpath-apply; ls -A d | wc -l"), "mine\n121\n");
}

#[test]
fn an_apply_waits_for_another_in_its_directory() {
    let trees = Trees::new("echo old > f");
    trees.over("echo new > f");
    let directory = fs::File::open(trees.tree()).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX) }, 0);
    assert!(trees.fails(&["apply"]).contains("is being written to by another apply: try again"));
    assert_eq!(sh(&trees.tree(), "cat f"), "old\n");
    drop(directory);
    trees.says(&["apply"]);
}

/// What the session left alone of a directory is the host's.
#[test]
fn directories_keep_the_attributes_that_the_host_has_given_them() {
    let trees = Trees::new("mkdir d e f g; chmod 750 d; setfattr -n user.k -v old e f g; echo x > g/x");
    trees.over("ls -l d e f g; cat g/x; echo d > d/d; echo e > e/e; setfattr -n user.k -v session f");
    sh(&trees.tree(), "setfacl -m u:12345:rwx d; setfattr -n user.h -v host e; setfattr -n user.k -v host g");
    // Whether this is the host's or the session's only the host's change time says.
    let text = trees.fails(&["apply"]);
    assert!(text.contains("conflict: d has changed on the host"), "{text}");
    trees.says(&["apply", "--force", "f"]);
    let look =
        "getfattr --only-values -n user.k f; getfacl -cp d | grep 12345; getfattr --only-values -n user.h e";
    assert_eq!(sh(&trees.tree(), look), "sessionuser:12345:rwx\nhost");
    trees.says(&["discard", "d", "e"]);
    assert_eq!(trees.says(&["diff"]), "");
    assert_eq!(trees.over(look), sh(&trees.tree(), look));
}

/// A later run takes over what only the host has changed.
#[test]
fn directories_of_sessions_get_the_attributes_that_the_host_gives_them() {
    let trees =
        Trees::new("mkdir d; setfattr -n user.k -v old d; setfattr -n user.gone -v x d; echo x > d/x");
    trees.over("cat d/x; getfattr -d d; echo new > other");
    sh(&trees.tree(), "setfacl -m u:12345:rwx d; setfattr -n user.k -v new d; setfattr -x user.gone d");
    let look = "getfattr --absolute-names -d d; getfacl -cp d";
    assert_eq!(trees.over(look), sh(&trees.tree(), look));
    trees.over("echo y > d/y");
    trees.says(&["apply"]);
    assert_eq!(
        sh(&trees.tree(), "cat d/y; getfattr --only-values -n user.k d; getfacl -cp d | grep 12345"),
        "y\nnewuser:12345:rwx\n"
    );
}

/// Before a directory has its own mode, nobody else may look into it.
#[test]
fn directories_are_private_until_they_are_complete() {
    let trees = Trees::new("echo old > a");
    trees.over("umask 077; mkdir -p private/inner; for n in $(seq 5); do echo $n > private/inner/$n; done");
    let mut calls = 100;
    while let Some(pid) = stopped_at(&mut trees.lightpath(&["apply", "--reverse", "../undo"]), calls) {
        if let Ok(found) = fs::metadata(trees.tree().join("private")) {
            assert_eq!(found.permissions().mode() & 0o77, 0, "at stop {calls}");
            let undo = fs::metadata(trees.home.path().join("undo")).unwrap();
            assert_eq!(undo.permissions().mode() & 0o77, 0);
            kill(pid);
            return;
        }
        kill(pid);
        let _ = fs::remove_file(trees.home.path().join("undo"));
        calls += 40;
    }
    panic!("no stop was between");
}

#[test]
fn attributes_are_applied_to_what_nobody_may_write_to() {
    if !is_root() {
        return;
    }
    let trees = Trees::new(
        "echo x > f; chmod 444 f; echo y > g; chmod 444 g; chmod 755 .. .; chown -R 12345:12345 .",
    );
    let state = trees.home.path().join("other");
    fs::create_dir(&state).unwrap();
    sh(trees.home.path(), "chown 12345:12345 other");
    let script = "chmod 644 f g; setfattr -n user.k -v v f g; chmod 444 g";
    said(
        &trees
            .lightpath_as(12345, &state, &["run", "--over", ".", "--", "sh", "-c", script])
            .output()
            .unwrap(),
    );
    said(&trees.lightpath_as(12345, &state, &["apply"]).output().unwrap());
    let look = "stat -c %a f g; getfattr --only-values -n user.k f g";
    assert_eq!(sh(&trees.tree(), look), "644\n444\nvv");
}

/// An apply that was interrupted ends although the file that would undo it has gone.
#[test]
fn an_apply_ends_without_the_file_that_undoes_it() {
    let trees = Trees::new("mkdir d");
    trees.over("for n in $(seq 20); do echo $n > d/$n; done");
    let journal = trees.home.path().join("state/lightpath").join(trees.session()).join("journal");
    let mut calls = stops(&mut trees.lightpath(&["apply", "--check"]));
    while !journal.exists() {
        let _ = fs::remove_file(trees.home.path().join("undo"));
        assert!(!killed_at(&mut trees.lightpath(&["apply", "--reverse", "../undo"]), calls));
        calls += 10;
    }
    fs::remove_file(trees.home.path().join("undo")).unwrap();
    let output = trees.lightpath(&["apply"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("undo: has gone, the apply cannot be undone"));
    said(&output);
    assert_eq!(sh(&trees.tree(), "cat d/20"), "20\n");
    assert_eq!(trees.says(&["sessions"]), "");
}

#[test]
fn what_something_is_mounted_on_is_written_in_place() {
    if !is_root() {
        return;
    }
    let trees = Trees::new("echo old > f; echo other > g");
    let script = "set -e; mount --bind g f; \"$0\" run --over . -- sh -c 'echo new > f'; \"$0\" apply; \
        cat f; umount f; cat f g";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_lightpath")]).current_dir(trees.tree());
    command.env("XDG_STATE_HOME", trees.home.path().join("state"));
    assert!(said(&command.output().unwrap()).ends_with("new\nold\nnew\n"));
}
