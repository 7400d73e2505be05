//! Extended attributes of a host tree: those of files are read when something needs them.

mod trees;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use trees::{Trees, is_root, killed_at, said, sh};

/// Files with attributes, some with two names, some empty; ACLs that give and take rights of user 65534.
const MAKE: &str = r#"
set -e
mkdir d e; chmod 755 d e
for n in 1 2 3 4 5 6 7 8 9; do echo $n > d/f$n; setfattr -n user.k -v value$n d/f$n; done
setfattr -n user.other -v o d/f1; setfattr -n user.a -v a d/f1; ln d/f1 e/one
: > d/empty; setfattr -n user.k -v e d/empty; : > d/plain; echo plain > e/plain
chmod 640 d/f2; setfacl -m u:65534:rw d/f2
chmod 644 d/f3; setfacl -m u:65534:--- d/f3
chmod 660 d/empty; setfacl -m u:65534:rw d/empty
chmod 600 d/f4
cap=0x0100000200200000000000000000000000000000
for n in 5 6 7 8; do setfattr -n security.capability -v $cap d/f$n; done
"#;

const SHOW: &str = "(cd d && getfattr -d -m - * ../e/* ; getfacl -p * ../e/*; stat -c '%n %a %u %h' *) 2>&1";

/// A tree that others may search.
fn open_trees() -> Trees {
    let trees = Trees::new(MAKE);
    fs::set_permissions(trees.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    trees
}

/// Each call that needs attributes, first of all in a session.
#[test]
fn whatever_needs_attributes_finds_them() {
    if !is_root() {
        return;
    }
    let calls = [
        "getfattr -d -m - d/f1 e/one d/plain",
        "getfacl -p d/f2 d/plain",
        "setfattr -n user.new -v n d/f1",
        "setfattr -n user.k -v changed d/f1; setfattr -x user.a e/one",
        "setfattr -x user.none d/f1",
        "setfacl -m u:7:r d/f3; setfacl -b d/f2",
        "chmod 600 d/f2; chmod 664 d/f3; chmod 700 d/f1",
        "chown 7 d/f5; chown 7 d/f2; chgrp 7 d/plain",
        "echo more >> d/f6; : > d/f7; truncate -s 1 d/f8; printf x >> d/empty; echo x > d/plain",
        "dd if=/dev/zero of=d/f5 bs=1 count=1 conv=notrunc 2>/dev/null",
        "mv d/f1 d/moved; ln d/f2 d/two; rm d/f3; cp -a d/f6 e/copy; cp d/f6 d/bare",
        "mv d away; mkdir d; mv away/f2 d/f2",
        "tar cf t.tar --xattrs --acls d && mkdir x && tar xf t.tar --xattrs --acls -C x && getfattr -d x/d/f1",
    ];
    let show = "find . -type f | LC_ALL=C sort | while read f; do getfattr -d -m - $f; getfacl -p $f; stat -c '%n %a %u %g %h %s' $f; done 2>&1";
    for call in calls {
        let trees = open_trees();
        let script = format!("{{ find . -size +0; {call}; }} 2>&1 | LC_ALL=C sort");
        assert_eq!(trees.over(&script), sh(&trees.copy(), &script), "{call}");
        assert_eq!(trees.over(show), sh(&trees.copy(), show), "{call}: attributes");
        trees.says(&["apply"]);
        assert_eq!(sh(&trees.tree(), show), sh(&trees.copy(), show), "{call}: after apply");
    }
}

/// ACLs decide for a user who owns nothing, whichever call comes first.
#[test]
fn acls_decide_from_the_first_call_on() {
    if !is_root() {
        return;
    }
    let calls = [
        "open(name).close()",
        "open(name, 'a').close()",
        "open(name, 'w').close()",
        "print(os.access(name, os.R_OK), os.access(name, os.W_OK), os.access(name, os.R_OK, effective_ids=True))",
        "os.utime(name)",
        "os.utime(name, (1, 1))",
        "os.truncate(name, 0)",
        "os.link(name, '/'.join((os.getcwd(), 'e', name[2:] + 'link')))",
        "print(os.getxattr(name, 'user.k'))",
        "os.setxattr(name, 'user.k', b'new')",
        "print(sorted(os.listxattr(name)) if os.access(name, os.R_OK) else 0)",
        "print(os.getxattr(name, 'system.posix_acl_access'))",
        "os.chmod(name, 0o600)",
        "os.execv(name, ['x'])",
    ];
    let trees = open_trees();
    for call in calls {
        let script = format!(
            "chmod 777 e; python3 - <<'END'\nimport os\nos.setresgid(7, 7, 7); os.setgroups([]); os.setresuid(65534, 65534, 65534)\nfor name in ['d/f2', 'd/f3', 'd/f4', 'd/f1', 'd/empty', 'd/plain']:\n  try:\n    {call}\n    print(name, 'done')\n  except OSError as e: print(name, e.errno)\nEND\n"
        );
        fs::remove_dir_all(trees.copy()).unwrap();
        sh(trees.home.path(), "cp -a tree copy");
        let output =
            trees.lightpath(&["run", "--discard", "--over", ".", "--", "sh", "-c", &script]).output();
        assert_eq!(said(&output.unwrap()), sh(&trees.copy(), &script), "{call}");
    }
}

/// A user who may not read all attributes of a file does not decide for others that there are none, and an
/// ACL that nobody has seen is no reason to let anybody in.
#[test]
fn what_one_may_not_read_is_there_for_others() {
    if !is_root() {
        return;
    }
    let trees = open_trees();
    let user = |call: &str| {
        format!(
            "python3 - <<'END'\nimport os\nos.setgroups([]); os.setresgid(7, 7, 7); os.setresuid(65534, 65534, 65534)\ntry: print({call})\nexcept OSError as e: print(e.errno)\nEND\n"
        )
    };
    let script = [
        "stat d/* > /dev/null; : > $READY; read go; ",
        &user("os.listxattr('d/f4')"),
        "getfattr --only-values -n user.k d/f4; echo\n",
        &user("os.getxattr('d/f3', 'system.posix_acl_access')[:1]"),
        &user("os.open('d/f2', os.O_RDONLY) > 0"),
        &user("os.open('d/f3', os.O_RDONLY) > 0"),
        "cat d/f3\n",
    ];
    let text = trees.beside(&script.concat(), "chmod 641 d/f2");
    assert_eq!(text, "13\nvalue4\nb'\\x02'\n5\n13\n3\n");
}

/// A file in a directory that one may search and not read, whose names somebody else has looked at.
#[test]
fn attributes_are_taken_where_one_may_only_search() {
    if !is_root() {
        return;
    }
    let trees = open_trees();
    sh(&trees.tree(), "chmod 711 d");
    let script = "stat d/* > /dev/null; setpriv --reuid 65534 --regid 7 --clear-groups \
        sh -c 'cat d/f1; cat d/f2; getfattr --only-values -n user.k d/f5'";
    assert_eq!(trees.over(script), sh(&trees.tree(), script));
}

/// The host's own checks hold beside the session's modes.
#[test]
fn what_the_host_refuses_is_refused() {
    if !is_root() {
        return;
    }
    let trees = open_trees();
    let make = "mkdir shut; echo in > shut/in; chmod 311 shut; echo mine > mine; chmod 0 mine; chown 65534 mine shut; \
        mkdir -p d/e; for n in $(seq 20); do echo $n > n$n; done";
    sh(&trees.tree(), make);
    let script =
        "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'cat shut/in; chmod 600 mine; cat mine; \
        stat -c %a mine' 2>&1; cat mine shut/in; python3 -c \"
import errno, os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
last = os.open('n20', os.O_RDONLY)
try:
    for n in range(1, 20): os.open('n%d' % n, os.O_PATH)
except OSError as e: pass
for call in (lambda: os.read(last, 9), lambda: os.stat('d/e')):
    try: print(call())
    except OSError as e: print(errno.errorcode[e.errno])
\"";
    let expected =
        "cat: shut/in: Permission denied\ncat: mine: Permission denied\n600\nmine\nin\nEMFILE\nEMFILE\n";
    assert_eq!(trees.over(script), expected);
}

/// What is taken as a directory is read is what the process that reads it sees.
#[test]
fn what_the_host_does_not_show_is_not_shown() {
    if !is_root() {
        return;
    }
    let trees = open_trees();
    sh(
        &trees.tree(),
        "mkdir one; ln -s one link; setfattr -h -n trusted.k -v v one link; echo x > two; chown 1 one two",
    );
    let script =
        "setpriv --reuid 65534 --regid 65534 --clear-groups stat -c %u one; getfattr -h -m - one link";
    assert_eq!(trees.over(script), "1\n");
    trees.says(&["discard"]);
    let first = trees.over("getfattr -h -m - one link");
    assert_eq!(first, "# file: one\ntrusted.k\n\n");
    trees.says(&["discard"]);
    assert_eq!(trees.over("unshare -U stat -c %u two; stat -c %u two"), "65534\n65534\n");
}

/// A user who does not see attributes of the namespace `trusted` does not decide that there are none.
#[test]
fn attributes_that_one_does_not_see_are_there_for_root() {
    if !is_root() {
        return;
    }
    let trees = open_trees();
    let set =
        "setfattr -n trusted.t -v t d/f1; setfattr -n trusted.t -v t d/f5; setfattr -n trusted.t -v t d/f6";
    sh(&trees.tree(), set);
    sh(&trees.copy(), set);
    let user = "setpriv --reuid 65534 --regid 7 --clear-groups getfattr -d -m - d/f1 d/f5 d/f6 e/plain";
    let change = "setfattr -x user.k d/f5; setfattr -x trusted.t d/f6; echo more >> d/f1; echo more >> d/f5";
    let script = format!("{user}; getfattr -d -m - d/f1; {change}; {user}; {SHOW}");
    assert_eq!(trees.over(&script), sh(&trees.copy(), &script));
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), SHOW), sh(&trees.copy(), SHOW));
}

/// Attributes are those that the file had when it was first seen, or an error.
#[test]
fn attributes_that_change_on_the_host_are_an_error_or_kept() {
    let trees = Trees::new(
        "mkdir d e; for n in 1 2 3; do echo $n > d/f$n; echo $n > e/f$n; setfattr -n user.k -v was d/f$n e/f$n; done",
    );
    let script = "stat d/* e/* > /dev/null; getfattr --only-values -n user.k d/f1; echo; mv e/f2 e/g; : > $READY; read go; \
        getfattr --only-values -n user.k d/f2; echo; getfattr -n user.k e/f1 2>&1; getfattr --only-values -n user.k e/f3; echo; \
        chmod 600 e/f1; cat e/f1 2>&1; stat -c %a e/f1";
    let change = "for f in d/f2 e/f1 e/f2; do setfattr -n user.k -v is $f; done";
    let text = trees.beside(script, change);
    let expected = "was\nwas\ne/f1: user.k: Input/output error\nwas\ncat: e/f1: Input/output error\n600\n";
    assert_eq!(text, expected);
    let diff = trees.lightpath(&["diff", "--name-status"]).output().unwrap();
    let (said, complaint) = (String::from_utf8_lossy(&diff.stdout), String::from_utf8_lossy(&diff.stderr));
    assert!(
        complaint.contains("conflict: e/f1") && complaint.contains("conflict: e/f2"),
        "{said}{complaint}"
    );
}

/// A look at attributes that is killed leaves what the next one completes, and no change.
#[test]
fn a_look_at_attributes_that_is_killed_is_repeated() {
    let trees = Trees::new(
        "mkdir d; for n in $(seq 60); do echo $n > d/f$n; setfattr -n user.k -v v$n d/f$n; setfattr -n user.b -v b d/f$n; setfacl -m u:7:r d/f$n; done",
    );
    let show = "cd d && getfattr -d -m - f* && getfacl f* && stat -c '%n %a %Z %i' f*";
    let expected = sh(&trees.tree(), show);
    let (mut calls, mut kills, mut ended) = (450, 0, false);
    while !ended {
        let mut look = trees.lightpath(&["run", "--over", ".", "--", "getfattr", "d/f30"]);
        ended = killed_at(&mut look, calls);
        assert_eq!(trees.over(show), expected, "killed at call {calls}");
        assert_eq!(trees.says(&["diff"]), "", "killed at call {calls}");
        trees.says(&["discard"]);
        calls += 61;
        kills += 1;
    }
    assert!(kills > 5, "{kills} kills");
}

/// An apply of the old name of a file alone removes the host's file: what is missing of it is read before.
#[test]
fn a_moved_file_keeps_its_attributes_when_its_old_name_is_applied() {
    let trees = Trees::new("echo f > f; setfattr -n user.k -v v f");
    trees.over("mv f g");
    trees.says(&["apply", "f"]);
    assert!(!trees.tree().join("f").exists());
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), "cat g; getfattr --only-values -n user.k g"), "f\nv");
}

#[test]
fn show_is_the_same_over_a_tree() {
    let trees = Trees::new(MAKE);
    assert_eq!(trees.over(SHOW), sh(&trees.tree(), SHOW));
    assert_eq!(trees.says(&["diff"]), "");
}
