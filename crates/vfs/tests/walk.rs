//! Paths that lead out of a mount and into another, long paths, long chains of links, large directories.

use std::collections::BTreeSet;
use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, Result};
use lp_region::{Geometry, Region};
use lp_vfs::open::Opened;
use lp_vfs::walk::{Follow, Found};
use lp_vfs::{
    Outside, Place, Task, boot, chdir, clock, close, getcwd, getdents, mkdir, mknod, open, page, reclaim,
    rename, symlink, table, unlink, walk,
};

mod setup;
use setup::fsck;
use setup::lent;

fn c(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// A file system with two mounts.
fn two_mounts() -> Task<'static> {
    let geometry = Geometry { data_bytes: 64 << 20, inodes: 200_000, identity: 9 };
    let region = Region::create_private(&geometry).expect("region");
    let mounts: &[&[u8]] = &[b"/light", b"/mnt/other"];
    let setup = boot::RunSetup { mounts, ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).expect("run");
    let process = boot::claim_process(region, run).expect("process");
    let lane = boot::attach(region, process, 1).expect("attach");
    let task = Task::new(region, process, lane, clock::now);
    boot::arrive(&task);
    for mount in 0..mounts.len() {
        boot::mkfs(&task, mount as u32).expect("mkfs");
    }
    task
}

fn dir(task: &Task, path: &str) {
    assert_eq!(mkdir::mkdirat(task, Fd::CWD, lent::path(&c(path)), 0o755), Ok(Place::Inside(())), "{path}");
}

fn file(task: &Task, path: &str) {
    let made = mknod::mknodat(task, Fd::CWD, lent::path(&c(path)), S_IFREG | 0o644, 0);
    assert_eq!(made, Ok(Place::Inside(())), "{path}");
}

fn link_to(task: &Task, target: &str, path: &str) {
    let made = symlink::symlinkat(task, lent::path(&c(target)), Fd::CWD, lent::path(&c(path)));
    assert_eq!(made, Ok(Place::Inside(())), "{path}");
}

fn find(task: &Task, path: &str) -> Result<Place<Found>> {
    walk::inode(task, Fd::CWD, lent::path(&c(path)), Follow::Link)
}

fn inside(task: &Task, path: &str) -> Found {
    match find(task, path) {
        Ok(Place::Inside(found)) => found,
        other => panic!("{path}: {other:?}"),
    }
}

/// The host path at which a walk leaves.
fn leaves(task: &Task, path: &str) -> String {
    match find(task, path) {
        Ok(Place::Outside(Outside::Rewritten(length))) => {
            // SAFETY: the walk left the path there, and the task makes no call meanwhile.
            let text = unsafe { &*task.scratch.outside.get() };
            assert_eq!(text[length], 0);
            String::from_utf8(text[..length].to_vec()).unwrap()
        }
        other => panic!("{path}: {other:?}"),
    }
}

fn squeezed(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

#[test]
fn a_path_is_ours_by_its_letters() {
    let task = two_mounts();
    file(&task, "/light/f");
    let found = inside(&task, "/light/f");
    for path in
        ["//light//f", "/./light/./f", "/mnt/../light/f", "/light/../light/f", "/mnt/other/../../light/f"]
    {
        assert_eq!(inside(&task, path).inode, found.inode, "{path}");
    }
    // Whether `/usr` is there, and where it leads, only the host knows.
    for path in [
        "/",
        "/lightning",
        "/ligh",
        "/usr/bin",
        "/mnt",
        "/mnt/others/x",
        "relative",
        "/usr//bin/../x",
        "/usr/../light/f",
    ] {
        assert_eq!(find(&task, path), Ok(Place::Outside(Outside::AsGiven)), "{path}");
    }
}

#[test]
fn links_and_dots_lead_out_and_back() {
    let task = two_mounts();
    dir(&task, "/light/d");
    file(&task, "/mnt/other/g");
    link_to(&task, "/etc/passwd", "/light/host");
    link_to(&task, "/mnt/other/", "/light/d/other");
    link_to(&task, "../../mnt/other/g", "/light/d/up");
    link_to(&task, "/light/d/other/g", "/light/twice");
    assert_eq!(leaves(&task, "/light/host"), "/etc/passwd");
    assert_eq!(squeezed(&leaves(&task, "/light/host/x/y")), "/etc/passwd/x/y");
    assert_eq!(squeezed(&leaves(&task, "/light/..")), "/.");
    assert_eq!(squeezed(&leaves(&task, "/light/d/../../usr/bin")), "/usr/bin");
    assert_eq!(squeezed(&leaves(&task, "/mnt/other/../x")), "/mnt/x");
    let there = inside(&task, "/mnt/other/g").inode;
    for path in ["/light/d/other/g", "/light/d/up", "/light/twice", "/light/d/other/../other/g"] {
        assert_eq!(inside(&task, path).inode, there, "{path}");
    }
    let exdev = rename::renameat2(
        &task,
        Fd::CWD,
        lent::path(&c("/light/d")),
        Fd::CWD,
        lent::path(&c("/mnt/other/d")),
        0,
    );
    assert_eq!(exdev, Err(Errno::EXDEV));
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let task = two_mounts();
    file(&task, "/light/l0");
    for number in 1..=41 {
        link_to(&task, &format!("l{}", number - 1), &format!("/light/l{number}"));
    }
    inside(&task, "/light/l40");
    assert_eq!(find(&task, "/light/l41"), Err(Errno::ELOOP));
    link_to(&task, "loop", "/light/loop");
    assert_eq!(find(&task, "/light/loop"), Err(Errno::ELOOP));
}

#[test]
fn names_and_paths_have_their_limits() {
    let task = two_mounts();
    let longest = "n".repeat(255);
    file(&task, &format!("/light/{longest}"));
    inside(&task, &format!("/light/{longest}"));
    assert_eq!(find(&task, &format!("/light/{longest}n")), Err(Errno::ENAMETOOLONG));
    // 4,095 bytes are a valid path, 4,096 are not.
    let path = |length: usize| format!("/light/{}", &"./".repeat(length)[..length - 7]);
    inside(&task, &path(4095));
    assert_eq!(find(&task, &path(4096)), Err(Errno::ENAMETOOLONG));
    assert_eq!(find(&task, ""), Err(Errno::ENOENT));
    // Deep trees are reached step by step, and getcwd fails when the path no longer fits.
    assert_eq!(chdir::chdir(&task, lent::path(&c("/light"))), Ok(Place::Inside(())));
    for _ in 0..30 {
        assert_eq!(
            mkdir::mkdirat(&task, Fd::CWD, lent::path(&c(&longest[1..])), 0o755),
            Ok(Place::Inside(()))
        );
        assert_eq!(chdir::chdir(&task, lent::path(&c(&longest[1..]))), Ok(Place::Inside(())));
    }
    let mut buffer = [0u8; 4096];
    assert_eq!(getcwd::getcwd(&task, lent::room(&mut buffer)), Err(Errno::ENAMETOOLONG));
}

#[test]
fn the_working_directory_follows_its_renames() {
    let task = two_mounts();
    dir(&task, "/light/a");
    dir(&task, "/light/a/b");
    dir(&task, "/light/c");
    assert_eq!(chdir::chdir(&task, lent::path(&c("/light/a/b"))), Ok(Place::Inside(())));
    let cwd = || {
        let mut buffer = [0u8; 64];
        let length = getcwd::getcwd(&task, lent::room(&mut buffer))?.unwrap();
        assert_eq!(buffer[length - 1], 0);
        Ok(String::from_utf8(buffer[..length - 1].to_vec()).unwrap())
    };
    assert_eq!(cwd(), Ok("/light/a/b".into()));
    let (from, to) = (c("/light/a"), c("/light/c/moved"));
    rename::renameat2(&task, Fd::CWD, lent::path(&from), Fd::CWD, lent::path(&to), 0).unwrap();
    assert_eq!(cwd(), Ok("/light/c/moved/b".into()));
    unlink::rmdir(&task, Fd::CWD, lent::path(&c("/light/c/moved/b"))).unwrap();
    assert_eq!(cwd(), Err(Errno::ENOENT));
    assert_eq!(find(&task, "x"), Err(Errno::ENOENT));
    let made = mkdir::mkdirat(&task, Fd::CWD, lent::path(&c("x")), 0o755);
    assert_eq!(made, Err(Errno::ENOENT));
}

/// Reads some records and returns the names.
fn read_names(task: &Task, fd: Fd, bytes: usize) -> Vec<String> {
    let mut buffer = vec![0u8; bytes];
    let got = getdents::getdents64(task, fd, lent::room(&mut buffer)).expect("getdents64");
    let (mut at, mut names) = (0, Vec::new());
    while at < got {
        let length = u16::from_le_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
        let name = buffer[at + 19..at + length].split(|byte| *byte == 0).next().unwrap();
        names.push(String::from_utf8(name.to_vec()).unwrap());
        at += length;
    }
    names
}

#[test]
fn a_large_directory_is_listed_while_it_shrinks() {
    let task = two_mounts();
    let root = boot::root(&task, 0).unwrap().id;
    dir(&task, "/light/big");
    let (slots, pages) = (fsck::slots(&task), page::free_count(task.region));
    const FILES: usize = 30_000;
    for number in 0..FILES {
        file(&task, &format!("/light/big/name-number-{number}"));
    }
    fsck::check(&task, root);
    let fd = match open::openat(&task, Fd::CWD, lent::path(&c("/light/big")), O_DIRECTORY, 0).unwrap() {
        Place::Inside(Opened::File(id)) => {
            table::install(&task, Fd::new(5), id, 0).unwrap();
            Fd::new(5)
        }
        other => panic!("{other:?}"),
    };
    let mut seen = BTreeSet::new();
    let mut removed = 0;
    loop {
        let names = read_names(&task, fd, 700);
        if names.is_empty() {
            break;
        }
        for name in names {
            assert!(seen.insert(name.clone()), "{name} was listed twice");
            // Like `rm -r`: listed names are removed while the listing continues.
            if name.starts_with("name") && !name.ends_with("77") {
                unlink::unlink(&task, Fd::CWD, lent::path(&c(&format!("/light/big/{name}")))).unwrap();
                removed += 1;
            }
        }
    }
    assert_eq!(seen.len(), FILES + 2, "not all were listed");
    fsck::check(&task, root);
    let left: BTreeSet<_> = seen.iter().filter(|name| name.ends_with("77")).collect();
    assert_eq!(left.len() + removed, FILES);
    for name in left {
        unlink::unlink(&task, Fd::CWD, lent::path(&c(&format!("/light/big/{name}")))).unwrap();
    }
    close::close(&task, fd).unwrap();
    reclaim::run(&task);
    fsck::check(&task, root);
    let after = fsck::slots(&task);
    assert_eq!(after, slots, "slots of entries, inodes, long names, buckets");
    assert!(
        pages - page::free_count(task.region) <= 2,
        "the directory keeps more than a map page and a page"
    );
}
