//! `lightpath run --over FILE`: archives and frozen regions as the tree below.

mod trees;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use tar::{Builder, EntryType, Header};
use trees::{LIST, MAKE, Trees, killed_at, sh};
use zip::write::SimpleFileOptions;

/// Times of files and directories.
const TIMES: &str = "export LC_ALL=C; find . -printf '%P %y %T@\n' | sort";

/// Packs the copy of the tree in the form that the name's end says.
fn pack(trees: &Trees, name: &str) {
    let to = trees.tree().join(name);
    let tar = trees.home.path().join("tar");
    sh(&trees.copy(), &format!("tar --format=posix -cf {} .", tar.display()));
    let bytes = fs::read(&tar).unwrap();
    match name.rsplit('.').next().unwrap() {
        "gz" => {
            let mut to =
                flate2::write::GzEncoder::new(File::create(to).unwrap(), flate2::Compression::fast());
            to.write_all(&bytes).unwrap();
            to.finish().unwrap();
        }
        "zst" => zstd::stream::copy_encode(&bytes[..], File::create(to).unwrap(), 1).unwrap(),
        _ => fs::write(to, bytes).unwrap(),
    }
}

fn run<'a>(file: &'a str, script: &'a str) -> [&'a str; 9] {
    ["run", "--over", file, "--at", "/tree", "--", "sh", "-c", script]
}

/// A script that begins in the tree.
fn there(script: &str) -> String {
    format!("cd $LIGHTPATH; {script}")
}

#[test]
fn an_archive_shows_what_was_packed() {
    let trees = Trees::new(MAKE);
    for name in ["t.tar", "t.tar.gz", "t.tar.zst"] {
        pack(&trees, name);
        let before = fs::read(trees.tree().join(name)).unwrap();
        assert_eq!(trees.says(&run(name, &there(LIST))), sh(&trees.copy(), LIST), "{name}");
        assert_eq!(trees.says(&run(name, &there(TIMES))), sh(&trees.copy(), TIMES), "{name}");
        assert_eq!(fs::read(trees.tree().join(name)).unwrap(), before, "{name}");
    }
}

/// GNU tar's own format leaves the device of a FIFO empty.
#[test]
fn an_archive_in_the_format_of_gnu_tar_shows_what_was_packed() {
    let trees = Trees::new(MAKE);
    let to = trees.tree().join("t.tar");
    sh(&trees.copy(), &format!("tar --format=gnu -cf {} .", to.display()));
    assert_eq!(trees.says(&run("t.tar", &there(LIST))), sh(&trees.copy(), LIST));
}

/// Values of attributes with any bytes: an ACL that names user 10 has a line feed. GNU tar writes a name's
/// equals sign as `%3D`.
#[test]
fn an_archive_shows_attributes_with_any_bytes() {
    let trees = Trees::new(
        "set -e; echo f > f; setfacl -m u:10:rw f; setfattr -n user.n -v 0x0a0a3d000a f; setfattr -n user.a=b% -v x f; \
         mkdir d; setfacl -d -m g:10:rx d; echo g > $(printf '%0150d' 1); setfattr -n user.n -v 0x0a31310a $(printf '%0150d' 1)",
    );
    let user = "find . | LC_ALL=C sort | while read n; do getfattr -d -m user -e hex $n; done";
    let look = "find . | LC_ALL=C sort | while read n; do getfacl $n; getfattr -d -m - -e hex $n; done";
    let to = trees.tree().join("t.tar");
    sh(&trees.copy(), &format!("tar --xattrs --acls --format=posix -cf {} .", to.display()));
    sh(&trees.tree(), "rm -rf f d 0*");
    let expected = sh(&trees.copy(), user);
    assert_eq!(trees.says(&run("t.tar", &there(user))), expected);
    // What is exported holds all, ACLs as attributes of the system.
    let session = Trees::new("true");
    sh(session.home.path(), &format!("rmdir tree; cp -a {} tree", trees.copy().display()));
    session.over("true");
    session.says(&["export", "--tar", "../x.tar"]);
    let shown = session.says(&run("../x.tar", &there(look)));
    assert_eq!(shown, sh(&trees.copy(), look));
    sh(session.home.path(), "mkdir out; tar --xattrs --xattrs-include='user.*' -xf x.tar -C out");
    assert_eq!(sh(&session.home.path().join("out"), user), expected);
}

/// All forms in which GNU tar writes sparse files.
#[test]
fn an_archive_shows_sparse_files() {
    let trees = Trees::new(
        "truncate -s 3G s; printf x | dd of=s bs=1 seek=1234567 conv=notrunc 2> /dev/null; printf end >> s; truncate -s 1M hole; echo f > f",
    );
    let look =
        "stat -c '%n %s' *; tail -c +1234560 s | head -c 20 | od -c; tail -c 5 s | od -c; cat f; md5sum hole";
    let expected = sh(&trees.copy(), look);
    for form in
        ["posix --sparse-version=0.0", "posix --sparse-version=0.1", "posix --sparse-version=1.0", "gnu"]
    {
        let to = trees.tree().join("t.tar");
        sh(&trees.copy(), &format!("tar -S --format={form} -cf {} *", to.display()));
        assert_eq!(trees.says(&run("t.tar", &there(look))), expected, "{form}");
        trees.says(&["discard", "--session", "t.tar"]);
    }
}

#[test]
fn a_zip_archive_shows_what_was_packed() {
    let trees = Trees::new(
        "mkdir -p a/b; echo one > a/one; seq 1 100000 > a/b/many; ln -s b/many a/soft; chmod 755 a/one",
    );
    let mut zip = zip::ZipWriter::new(File::create(trees.tree().join("t.zip")).unwrap());
    let mode = |mode: u32| SimpleFileOptions::default().unix_permissions(mode);
    zip.add_directory("a", mode(0o755)).unwrap();
    zip.start_file("a/one", mode(0o755)).unwrap();
    zip.write_all(b"one\n").unwrap();
    // The directory above it is in no record of its own.
    zip.start_file("a/b/many", mode(0o644)).unwrap();
    zip.write_all(&fs::read(trees.copy().join("a/b/many")).unwrap()).unwrap();
    zip.add_symlink("a/soft", "b/many", mode(0o777)).unwrap();
    zip.finish().unwrap();
    assert_eq!(trees.says(&run("t.zip", &there(LIST))), sh(&trees.copy(), LIST));
}

#[test]
fn a_frozen_region_shows_what_was_frozen() {
    let trees = Trees::new(MAKE);
    let script = format!("cp -a {}/. $LIGHTPATH", trees.copy().display());
    trees.says(&["run", "--size", "64M", "--region", "base", "--", "sh", "-c", &script]);
    trees.says(&["freeze", "./base", "base.region"]);
    let region = || sh(&trees.tree(), "stat -c '%y %z %s %b' base.region");
    let before = region();
    assert_eq!(trees.says(&run("base.region", &there(LIST))), sh(&trees.copy(), LIST));
    assert_eq!(trees.says(&run("base.region", &there(TIMES))), sh(&trees.copy(), TIMES));
    trees.says(&run("base.region", &there("echo new > a/one")));
    assert_eq!(trees.says(&["diff", "--session", "base.region"]), "M\ta/one\nM\td/hard\n");
    assert_eq!(region(), before, "the region was written to");
    // One that a run has used is refused.
    trees.says(&["run", "--region", "base.region", "--", "true"]);
    let line = trees.fails(&["run", "--over", "base.region", "--session", "other", "--", "true"]);
    assert!(
        line.contains("has been used since it was frozen") && line.trim_end().lines().count() == 1,
        "{line}"
    );
}

#[test]
fn changes_to_an_archive_are_a_session() {
    let trees = Trees::new("mkdir d; echo one > d/one; seq 1 50 > many; echo gone > gone");
    pack(&trees, "t.tar");
    let script = "sed -i s/25/twenty-five/ many; rm gone; echo new > d/new; chmod 600 d/one";
    trees.says(&run("t.tar", &there(script)));
    sh(&trees.copy(), script);
    assert_eq!(trees.says(&run("t.tar", &there(LIST))), sh(&trees.copy(), LIST), "the second run");
    let name = ["--session", "t.tar"];
    assert_eq!(trees.says(&["diff", name[0], name[1]]), "A\td/new\nM\td/one\nD\tgone\nM\tmany\n");
    let patch = trees.says(&["diff", "--patch", name[0], name[1]]);
    assert!(patch.contains("-25\n+twenty-five\n"), "{patch}");
    assert_eq!(trees.says(&["diff", "--name-status", name[0], name[1], "/tree/d/new"]), "A\td/new\n");
    assert!(trees.fails(&["apply", name[0], name[1]]).contains("see lightpath export"));
    assert!(trees.fails(&["diff"]).contains("no session over the current directory"));
    trees.says(&["export", "--tar", "out.tar", name[0], name[1]]);
    let out = trees.home.path().join("out");
    fs::create_dir(&out).unwrap();
    sh(&out, &format!("tar xpf {}", trees.tree().join("out.tar").display()));
    assert_eq!(sh(&out, LIST), sh(&trees.copy(), LIST), "what was exported");
    assert!(trees.says(&["sessions"]).contains("t.tar"));
    let session = format!("{}+t.tar", trees.session());
    assert_eq!(trees.says(&["cat", &format!("{session}:d/new")]), "new\n");
    // Another archive in its place.
    fs::write(trees.copy().join("gone"), "again").unwrap();
    pack(&trees, "t.tar");
    assert!(trees.fails(&run("t.tar", "true")).contains("has changed since session"));
    trees.says(&["discard", name[0], name[1]]);
    assert_eq!(trees.says(&run("t.tar", &there(LIST))), sh(&trees.copy(), LIST), "a new session");
}

#[test]
fn a_discarded_tree_leaves_nothing() {
    let trees = Trees::new("mkdir -p d/e; echo one > d/e/one; chmod 555 d/e d");
    pack(&trees, "t.tar");
    let state = trees.home.path().join("state/lightpath");
    let names = || fs::read_dir(&state).map_or(0, |found| found.flatten().count());
    for (script, status) in [("echo x > d/new; cat d/e/one", 0), ("exit 3", 3), ("kill -9 $$", -9)] {
        let script = there(script);
        let args = ["run", "--over", "t.tar", "--discard", "--", "sh", "-c", &script];
        let output = trees.lightpath(&args).output().unwrap();
        let ended = std::os::unix::process::ExitStatusExt::signal(&output.status)
            .map_or(output.status.code(), |s| Some(-s));
        assert_eq!(ended, Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(names(), 0, "{script}");
    }
    // What one that is killed leaves is gone after the next.
    let (mut calls, step) = trees::kills(50, 97);
    while !killed_at(&mut trees.lightpath(&["run", "--over", "t.tar", "--discard", "--", "true"]), calls) {
        calls += step;
    }
    trees.says(&["run", "--over", "t.tar", "--discard", "--", "true"]);
    assert_eq!(names(), 0);
}

#[test]
fn an_unpacking_that_is_killed_is_done_again() {
    let trees = Trees::new("mkdir -p d/e; for i in $(seq 1 20); do echo $i > d/e/$i; done; chmod 555 d/e");
    pack(&trees, "t.tar");
    let (mut calls, step) = trees::kills(200, 23);
    let mut steps = 0;
    loop {
        let ended = killed_at(&mut trees.lightpath(&run("t.tar", "true")), calls);
        assert_eq!(
            trees.says(&run("t.tar", &there(LIST))),
            sh(&trees.copy(), LIST),
            "killed after {calls} stops"
        );
        trees.says(&["discard", "--session", "t.tar"]);
        if ended {
            break;
        }
        calls += step;
        steps += 1;
    }
    assert!(steps > 10, "only {steps} steps");
}

/// A member of an archive: its name, its type and where it leads if it is a link.
type Member = (&'static str, EntryType, &'static str);

/// Makes an archive with these members.
fn archive_of(at: &Path, members: &[Member]) {
    let mut archive = Builder::new(File::create(at).unwrap());
    for (name, kind, to) in members {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..to.len()].copy_from_slice(to.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(if *kind == EntryType::Regular { 2 } else { 0 });
        header.set_cksum();
        archive.append(&header, if *kind == EntryType::Regular { &b"x\n"[..] } else { &[] }).unwrap();
    }
    archive.finish().unwrap();
}

#[test]
fn a_bad_archive_is_one_line() {
    use EntryType::{Directory, Link, Regular, Symlink};
    let trees = Trees::new("mkdir d; seq 1 100000 > d/many; echo no > f");
    let refused = |name: &str, why: &str| {
        let line = trees.fails(&["run", "--over", name, "--", "true"]);
        assert!(line.trim_end().lines().count() == 1 && line.contains(why), "{name}: {line}");
        assert_eq!(trees.says(&["sessions"]), "", "{name}");
        let state = trees.home.path().join("state/lightpath");
        assert_eq!(fs::read_dir(state).map_or(0, |found| found.flatten().count()), 0, "{name}");
    };
    let outside = trees.home.path().join("outside");
    let cases: [(&[Member], &str); 8] = [
        (&[("/etc/x", Regular, "")], "absolute name: /etc/x"),
        (&[("a/../../outside", Regular, "")], "a name with ..: a/../../outside"),
        (&[("a", Regular, ""), ("./a", Regular, "")], "holds a twice"),
        (&[("a", Directory, ""), ("a", Symlink, "/etc")], "holds a twice"),
        (&[("a", Symlink, ".."), ("a/outside", Regular, "")], "a/outside, which is below a: not a directory"),
        (&[("a", Link, "../../outside")], "a name with .."),
        (&[("a", Link, "b"), ("b", Regular, "")], "a link to b, which no member before it is"),
        (&[("a", EntryType::new(b'Z'), "")], "of type 'Z'"),
    ];
    for (members, why) in cases {
        archive_of(&trees.tree().join("bad.tar"), members);
        refused("bad.tar", why);
        assert!(!outside.exists(), "{why}");
    }
    // Directories may be named again.
    archive_of(
        &trees.tree().join("good.tar"),
        &[("a", Directory, ""), ("a/b", Regular, ""), ("a/", Directory, "")],
    );
    assert_eq!(trees.says(&["run", "--over", "good.tar", "--discard", "--", "cat", "/light/a/b"]), "x\n");
    for name in ["t.tar", "t.tar.gz", "t.tar.zst"] {
        pack(&trees, name);
        let bytes = fs::read(trees.tree().join(name)).unwrap();
        let cut = trees.tree().join(name);
        fs::write(cut, &bytes[..bytes.len() / 2]).unwrap();
        refused(name, "is a broken archive");
    }
    fs::write(trees.tree().join("t.zip"), b"PK\x03\x04 and nothing more").unwrap();
    refused("t.zip", "is a broken archive");
    refused("f", "Not a directory, and no tar");
    assert!(
        trees.fails(&["run", "--over", "good.tar", "--apply", "--", "true"]).contains("lightpath export")
    );
    assert!(
        trees.fails(&["run", "--over", ".", "--at", "/nowhere", "--", "true"]).contains("leave --at out")
    );
}

#[test]
fn a_session_of_another_size_is_no_other_region() {
    let trees = Trees::new("echo f > f");
    pack(&trees, "t.tar");
    let sized = |size| ["run", "--over", "t.tar", "--at", "/tree", "--size", size, "--", "true"];
    trees.says(&sized("64M"));
    let text = trees.fails(&sized("32M"));
    assert!(text.ends_with("the session was made with --size 67108864: leave --size out\n"), "{text}");
}
