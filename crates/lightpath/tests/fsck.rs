//! `lightpath fsck`: what it says of sound, damaged and busy region files, and what a repair keeps.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use lp_region::lane::Lane;
use lp_region::layout::{DIRENT_SLAB, INODE_SLAB, LANE_SLAB};
use lp_region::records::{Dirent, Header, Inode};

/// What the tree must be again after a repair.
const LIST: &str = "cd /light && find . | sort && cat d/one && wc -c < big";

fn lightpath() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lightpath"))
}

fn sh(region: &Path, script: &str) -> Output {
    lightpath()
        .args(["run", "--at", "/light", "--region"])
        .arg(region)
        .args(["--", "sh", "-c", script])
        .output()
        .unwrap()
}

fn fsck(options: &[&str], region: &Path) -> (Option<i32>, String) {
    let output = lightpath().arg("fsck").args(options).arg(region).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

/// A region with a few files, and what [`LIST`] says of it.
fn made(directory: &Path) -> (PathBuf, String) {
    let path = directory.join("region");
    let make = "mkdir -p /light/d/e; echo text > /light/d/one; ln /light/d/one /light/d/e/two; head -c 200000 /dev/zero > /light/big";
    let output = lightpath()
        .args(["run", "--at", "/light", "--size", "16M", "--region"])
        .arg(&path)
        .args(["--", "sh", "-c", make])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let listed = sh(&path, LIST);
    assert!(listed.status.success(), "{listed:?}");
    (path, String::from_utf8(listed.stdout).unwrap())
}

/// The number of the inode that a path names.
fn inode(region: &Path, path: &str) -> u64 {
    let output = sh(region, &format!("stat -c %i {path}"));
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

fn put(region: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(region).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn a_sound_region_is_clean_and_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (path, listed) = made(dir.path());
    for options in [&[][..], &["--repair"]] {
        let (status, text) = fsck(options, &path);
        assert_eq!((status, text.lines().count()), (Some(0), 1), "{text}");
        assert!(text.contains(": clean: "), "{text}");
    }
    assert_eq!(String::from_utf8_lossy(&sh(&path, LIST).stdout), listed);
}

#[test]
fn damage_is_named_refused_and_mended() {
    let dir = tempfile::tempdir().unwrap();
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("ends at position", |path| {
            let at = inode_at(inode(path, "/light/d"), core::mem::offset_of!(Inode, tail));
            put(path, at, &(1u64 << 50).to_le_bytes());
        }),
        ("has a page map of height", |path| {
            let at = inode_at(inode(path, "/light/d"), core::mem::offset_of!(Inode, map) + 4);
            put(path, at, &77u32.to_le_bytes());
        }),
        ("in a cache of", |path| {
            for lane in 1..4 {
                let at = (LANE_SLAB.offset(lane) + core::mem::offset_of!(Lane, caches)) as u64;
                (0..3).for_each(|slab| put(path, at + slab * 124, &1000u32.to_le_bytes()));
            }
        }),
        ("lies below itself", |path| {
            // Each of two directories becomes the other's parent: entries and inodes agree, but no root is
            // above.
            let (d, e) = (inode(path, "/light/d"), inode(path, "/light/d/e"));
            let own = core::mem::offset_of!(Inode, self_dirent);
            let mut entry = [0; 4];
            File::open(path).unwrap().read_exact_at(&mut entry, inode_at(d, own)).unwrap();
            let entry = DIRENT_SLAB.offset(u32::from_le_bytes(entry) as usize) as u64;
            let parent = core::mem::offset_of!(lp_region::records::Dirent, parent) as u64;
            put(path, entry + parent, &(e as u32).to_le_bytes());
            put(path, inode_at(d, core::mem::offset_of!(Inode, parent)), &(e as u32).to_le_bytes());
        }),
    ];
    for (number, (finding, damage)) in damages.into_iter().enumerate() {
        let dir = dir.path().join(number.to_string());
        std::fs::create_dir(&dir).unwrap();
        let (path, listed) = made(&dir);
        damage(&path);
        let refused = sh(&path, LIST);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains("is damaged") && said.contains("lightpath fsck --repair"), "{said}");
        let (status, text) = fsck(&[], &path);
        assert!(status == Some(4) && text.contains(finding), "{status:?} {text}");
        let (status, text) = fsck(&["--json"], &path);
        assert!(
            status == Some(4) && text.starts_with("{\"file\":") && text.contains("\"sound\":false"),
            "{text}"
        );
        let (status, text) = fsck(&["--repair"], &path);
        assert!(status == Some(1) && text.contains(": mended: "), "{status:?} {text}");
        let (status, text) = fsck(&[], &path);
        assert!(status == Some(0) && text.contains(": clean: "), "{status:?} {text}");
        // A directory below itself hangs on nothing: which name was wrong, nobody can know.
        if finding != "lies below itself" {
            assert_eq!(String::from_utf8_lossy(&sh(&path, LIST).stdout), listed, "after {finding}");
        }
        assert!(sh(&path, "echo a > /light/new && cat /light/new && rm -r /light/*").status.success());
    }
}

/// Makes a region one of a former boot.
fn age(region: &Path) {
    put(region, core::mem::offset_of!(Header, boot) as u64, &[7; 16]);
}

/// Where a field of an inode is in a region's file.
fn inode_at(id: u64, field: usize) -> u64 {
    (INODE_SLAB.offset(id as usize) + field) as u64
}

/// Takes away the entry that has a short name, as if it were older than the file.
fn forget(region: &Path, name: &str) {
    let file = File::open(region).unwrap();
    let place = core::mem::offset_of!(Dirent, name);
    for index in 0.. {
        let (mut slot, at) = ([0; 64], DIRENT_SLAB.offset(index) as u64);
        file.read_exact_at(&mut slot, at).unwrap();
        if slot[place..].starts_with(name.as_bytes()) && slot[place + name.len()] == 0 {
            return put(region, at, &[0; 64]);
        }
    }
}

#[test]
fn a_region_of_a_former_boot_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let (path, listed) = made(dir.path());
    let in_lane = |path: &Path| {
        let at = LANE_SLAB.offset(1) + core::mem::offset_of!(Lane, caches);
        put(path, at as u64, &1000u32.to_le_bytes());
    };
    let damages: [&dyn Fn(&Path); 2] = [&|_| {}, &in_lane];
    for damage in damages {
        age(&path);
        damage(&path);
        let (_, text) = fsck(&[], &path);
        assert!(
            text.contains("last used before the machine was started; the next run rebuilds it"),
            "{text}"
        );
        let output = sh(&path, LIST);
        assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
        assert_eq!(String::from_utf8_lossy(&output.stdout), listed);
        let (status, text) = fsck(&[], &path);
        assert!(status == Some(0) && text.contains(": clean: "), "{status:?} {text}");
    }
    age(&path);
    let (status, text) = fsck(&["--repair"], &path);
    assert!(status == Some(0) && text.contains(": rebuilt: "), "{status:?} {text}");
    assert_eq!(String::from_utf8_lossy(&sh(&path, LIST).stdout), listed);
}

#[test]
fn what_lost_its_name_in_a_crash_is_in_lost_and_found() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = made(dir.path());
    let number = inode(&path, "/light/big");
    forget(&path, "big");
    age(&path);
    let output = sh(&path, "cat /light/lost+found/* | wc -c; ls /light/lost+found");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.ends_with(
            "was in use when the machine stopped: 1 file or directory without a name is in lost+found\n"
        ) && said.lines().count() == 1,
        "{said}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("200000\n#{number}\n"));
    assert_eq!(fsck(&[], &path).0, Some(0));
}

/// A process that alone changes a directory has the bias of its lock. Killed outside of the lock, it has left
/// nothing half done.
#[test]
fn what_the_dead_were_not_at_is_no_leftover_of_theirs() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = made(dir.path());
    let number = inode(&path, "/light/d");
    let script = "import os\nfor i in range(2000): os.close(os.open('/light/d/%d' % i, os.O_CREAT | os.O_WRONLY))\nos.kill(os.getpid(), 9)";
    assert_eq!(sh(&path, &format!("exec python3 -S -c \"{script}\"")).status.code(), None);
    let (status, text) = fsck(&[], &path);
    assert!(status == Some(0) && !text.contains("entries and counts"), "{status:?} {text}");
    let at = inode_at(number, core::mem::offset_of!(Inode, entries));
    let mut entries = [0; 4];
    File::open(&path).unwrap().read_exact_at(&mut entries, at).unwrap();
    put(&path, at, &(u32::from_le_bytes(entries) + 1).to_le_bytes());
    let (status, text) = fsck(&[], &path);
    let line = format!("inconsistent: directory {number} has 2002 entries and counts 2003");
    assert!(status == Some(4) && text.contains(&line), "{status:?} {text}");
}

#[test]
fn what_cannot_be_checked_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = made(dir.path());
    let mut run = lightpath()
        .args(["run", "--at", "/light", "--region"])
        .arg(&path)
        .args(["--", "sh", "-c", "echo ready; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    for options in [&[][..], &["--repair"]] {
        let (status, text) = fsck(options, &path);
        assert!(status == Some(8) && text.contains("is in use"), "{status:?} {text}");
    }
    drop(run.stdin.take());
    run.wait().unwrap();
    assert_eq!(fsck(&[], &path).0, Some(0));
    let text = dir.path().join("text");
    std::fs::write(&text, "text").unwrap();
    assert_eq!(fsck(&[], &text).0, Some(8));
    assert_eq!(fsck(&[], &dir.path().join("none")).0, Some(8));
    assert!(!dir.path().join("none").exists());
    assert_eq!(fsck(&["--mend"], &path).0, Some(16));
}
