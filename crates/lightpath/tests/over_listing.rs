//! Directories that are listed before anything is asked of their names.

mod trees;

use std::fs;
use std::thread;
use std::time::Duration;

use trees::{LIST, MAKE, Trees, killed_at, sh};

/// A tree that is older than any session over it.
fn aged(make: &str) -> Trees {
    let trees = Trees::new(make);
    thread::sleep(Duration::from_millis(50));
    trees
}

/// The attributes of a name are those that it has when they are first asked for, which a listing does not do.
#[test]
fn a_listing_sees_names_alone() {
    let trees = aged("mkdir d d/sub; for i in $(seq 300); do echo $i > d/f$i; done; chmod 644 d/f*");
    let change = "chmod 600 d/f7; echo longer > d/f8; rm d/f9; chmod 711 d/sub; echo new > d/new";
    let look =
        "stat -c %a d/f7; cat d/f8; cat d/f9 d/new 2> /dev/null || echo gone; stat -c %a d/sub; ls d | wc -l";
    let seen = trees.beside(&format!("ls d | wc -l; : > $READY; read go; {look}"), change);
    assert_eq!(seen, "301\n600\nlonger\ngone\n755\n300\n");
    // Seen with its attributes, it stays as it was.
    let change = "chmod 640 d/f17";
    let script = "stat -c %a d/f17; : > $READY; read go; stat -c %a d/f17";
    assert_eq!(trees.beside(script, change), "644\n644\n");
}

/// Each name that stays is listed once, whatever happens to the directory between two calls.
#[test]
fn a_listing_goes_on_where_it_was() {
    let program = r#"
import os, sys
seen, left = [], None
with os.scandir('d') as names:
    for index, entry in enumerate(names):
        seen.append(entry.name)
        if index == 1500:
            open(os.environ['READY'], 'w').close()
            sys.stdin.readline()
            os.stat('d/n1')
            for name in ['d/n2', 'd/n4000', 'd/s3']:
                (os.rmdir if 's' in name else os.unlink)(name)
            open('d/another', 'w').close()
            assert not os.path.exists('d/n77') and os.path.exists('d/n78')
gone = {'n2', 'n4000', 's3', 'n3', 'n77', 'n4999', 'another'}
wanted = {f'n{i}' for i in range(1, 5001)} | {f's{i}' for i in range(1, 201)}
assert len(seen) == len(set(seen)), 'twice'
assert wanted - gone <= set(seen), sorted(wanted - gone - set(seen))
assert sorted(os.listdir('d')) == sorted(wanted - gone | {'another'})
print('once')
"#;
    let trees = aged("mkdir d; cd d; seq -f n%g 5000 | xargs touch; seq -f s%g 200 | xargs mkdir");
    fs::write(trees.home.path().join("list.py"), program).unwrap();
    let change = "rm d/n3 d/n77 d/n4999";
    assert_eq!(trees.beside("python3 ../list.py", change), "once\n");
    assert_eq!(trees.says(&["diff", "--name-status"]), "A\td/another\nD\td/n2\nD\td/n4000\n");
}

/// getdents(2) and stat(2) say the same number, also of what the host writes to in between.
#[test]
fn listed_numbers_are_those_of_stat() {
    let trees = aged(
        "mkdir d e; for i in $(seq 40); do echo $i > d/f$i; done; ln d/f5 e/five; ln d/f6 d/six; ln -s f1 d/s",
    );
    let lists = "LC_ALL=C ls -U -i -1 d | sort -k 2 > ../a; : > $READY; read go; (cd d; stat -c '%i %n' *) | sed 's/^/ /' | LC_ALL=C sort -k 2 > ../b";
    let change = "echo more >> d/f3; echo more >> d/f5; chmod 600 d/f6";
    let links = "stat -c %h d/f5 e/five d/f6; [ d/f5 -ef e/five ] && [ d/f6 -ef d/six ] && echo linked";
    let shown = trees.beside(&format!("{lists}; {links}"), change);
    assert_eq!(shown, "2\n2\n2\nlinked\n");
    let [listed, stat] = ["a", "b"].map(|name| {
        let text = fs::read_to_string(trees.home.path().join(name)).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(listed.len(), 42);
    assert_eq!(listed, stat);
}

/// What is done below a directory that was only listed is all that a diff and an apply know of.
#[test]
fn what_is_below_a_listed_directory_is_compared() {
    let trees = aged(MAKE);
    trees.over("find . > /dev/null; echo new > a/b/new; echo more > keep/deep/file; rmdir empty");
    let expected = "A\ta/b/new\nA\tkeep/deep/file\n";
    assert_eq!(trees.says(&["diff", "--name-status"]), expected);
    trees.over("ls -R > /dev/null; mv keep kept; rm a/b/c/three");
    sh(
        &trees.copy(),
        "echo new > a/b/new; echo more > keep/deep/file; rmdir empty; mv keep kept; rm a/b/c/three",
    );
    assert_eq!(trees.over(LIST), sh(&trees.copy(), LIST));
    trees.says(&["apply"]);
    assert_eq!(sh(&trees.tree(), LIST), sh(&trees.copy(), LIST));
}

/// The size and the links of a directory are the same before, while and after its names are read.
#[test]
fn a_directory_that_is_read_stays_as_it_is() {
    let trees = aged("mkdir -p d/s d/t; seq -f d/n%g 400 | xargs touch");
    let stat = "stat -c '%s %h %Y %Z' - <&9";
    let script =
        format!("exec 9< d; {stat}; ls d > /dev/null; {stat}; cat d/n7; {stat}; ls -l d > /dev/null; {stat}");
    let seen = trees.over(&script);
    let lines: Vec<_> = seen.lines().collect();
    assert!(lines.len() == 4 && lines.iter().all(|line| *line == lines[0]), "{seen}");
    assert!(seen.starts_with("8080 4 "), "{seen}");
}

/// Until its names are read, the session does not know how many there are.
#[test]
fn a_directory_grows_when_its_names_are_read() {
    let trees = aged("mkdir -p d/s; seq -f d/n%g 40 | xargs touch");
    let seen = trees.over("stat -c '%s %b %h' d; : < d/n7; stat -c '%s %b %h' d");
    assert_eq!(seen, "40 0 3\n860 0 3\n");
}

#[test]
fn processes_list_and_look_at_once() {
    let trees = aged(
        "for d in $(seq 30); do mkdir -p d$d/sub; seq -f d$d/f%g 200 | xargs touch; ln d$d/f1 d$d/sub/one; done",
    );
    let expected = sh(&trees.copy(), LIST);
    let listed = sh(&trees.copy(), "find . | sort | md5sum");
    for _ in 0..3 {
        let script = format!(
            "for i in 1 2 3 4; do find . | sort | md5sum & ls -lR > /dev/null & stat d*/f9 > /dev/null & done; wait; {LIST}"
        );
        assert_eq!(trees.over(&script), format!("{}{expected}", listed.repeat(4)));
        assert_eq!(trees.says(&["diff"]), "");
        trees.says(&["discard"]);
    }
}

/// A listing, or the look that completes one, may be killed at any call.
#[test]
fn a_listing_that_is_killed_is_made_by_the_next_look() {
    let trees = aged(
        "mkdir -p d/s/t e; seq -f d/n%g 300 | xargs touch; seq -f e/s%g 150 | xargs mkdir; touch e/f; ln d/n1 e/one; setfattr -n user.k -v v d/n7 d/s",
    );
    let attributes = "getfattr -d d/n7 d/s; stat -c %h d/n1 e/one";
    let expected = sh(&trees.copy(), LIST) + &sh(&trees.copy(), attributes);
    let listed = sh(&trees.copy(), "find . | sort");
    let (mut calls, mut kills, mut ended) = (300, 0, false);
    while !ended {
        let mut look =
            trees.lightpath(&["run", "--over", ".", "--", "find", "d", "e", "-name", "n7", "-size", "0"]);
        ended = killed_at(&mut look, calls);
        assert_eq!(trees.over("find . | sort"), listed, "killed at call {calls}");
        assert_eq!(trees.over(&format!("{LIST}{attributes}")), expected, "killed at call {calls}");
        assert_eq!(trees.says(&["diff"]), "", "killed at call {calls}");
        let region = trees.home.path().join("state/lightpath").join(trees.session()).join("region");
        let checked = trees.lightpath(&["fsck", region.to_str().unwrap()]).output().unwrap();
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(!text.contains("structure") && !text.contains("inconsistent"), "killed at {calls}: {text}");
        trees.says(&["discard"]);
        calls += 97;
        kills += 1;
    }
    assert!(kills > 5, "{kills} kills");
}
